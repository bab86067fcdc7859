"""The exported graph as steps. What depends on neither data nor parameters is evaluated here, and operations in place
become their twins that make a new tensor."""

import operator
from typing import Any

import torch
from torch import fx

from . import noops
from .export import PREFIX, Exported
from .formulas import frequencies_in
from .graph import (DTYPES, Batch, Buffer, Constant, Parameter, Step, TensorType, Value, aten_step, named_arguments,
                    target_name, tensors)
from .refused import LIMITS, Refused, at_node
from .static import Static, evaluate, frozen, is_static

aten = torch.ops.aten
IGNORED = ("_assert", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_tensor_metadata",
           "_assert_scalar", "_assert_async")
FACTORIES = {aten.new_zeros.default: aten.zeros.default, aten.zeros_like.default: aten.zeros.default,
             aten.new_ones.default: aten.ones.default, aten.ones_like.default: aten.ones.default,
             aten.new_full.default: aten.full.default, aten.full_like.default: aten.full.default,
             aten.new_empty.default: aten.empty.memory_format, aten.empty_like.default: aten.empty.memory_format}
NARROW = (torch.int32, torch.int16, torch.int8)
PROBES = (2, 3, 5, 8, 67, 128, 129, 1025, 65537)  # numbers of samples that tell what an expression in them is


class Trace:
    """`steps` in order, `types` of their values and of the inputs, `outputs` of the module."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self.steps: list[Step] = []
        self.types: dict[Value, TensorType] = {}
        self.inputs: dict[str, TensorType] = {}
        self.outputs: list[Value] = []
        self.known: dict[fx.Node, Any] = {}
        self.results: dict[str, tuple[str, str]] = {}  # of all operations, also of those that do nothing: name, type
        self.casts = False  # an operation is told to give float32
        self.batch = self.batch_symbol()
        self.writes = writes_constants(exported)
        self.visit_all(list(exported.program.graph.nodes))

    def visit_all(self, nodes: list[fx.Node]) -> None:
        """In order; what no later one reads is let go, since masks are large."""
        last = {source: node for node in nodes for source in node.all_input_nodes}
        for node in nodes:
            self.visit(node)
            for source in node.all_input_nodes:
                if last[source] is node:
                    self.known.pop(source, None)

    def batch_symbol(self) -> Any:
        for node in self.exported.program.graph.nodes:
            if node.op == "placeholder" and node.name in self.exported.inputs:
                size = node.meta["val"].shape[0]
                if isinstance(size, int):
                    raise Refused(f"input {node.name}: the module takes exactly {size} samples; some code fixes their "
                                  "number")
                return size.node.expr
        raise Refused("the module reads none of its inputs")

    # Sizes and types.

    def integer(self, value: Any, node: fx.Node) -> Any:
        """An int, or a Batch for what grows with the samples."""
        if isinstance(value, int):
            return value
        expression = value.node.expr
        if expression.free_symbols - {self.batch}:
            raise Refused(f"{self.place(node)}: a size depends on values of a tensor; use fixed sizes{LIMITS}")
        at = {samples: int(expression.subs(self.batch, samples)) for samples in PROBES}
        factor = at[3] - at[2]
        found = Batch(factor, at[2] - 2 * factor)
        if any(found.at(samples) != size for samples, size in at.items()):
            raise Refused(f"{self.place(node)}: the size {expression} is no multiple of the number of samples")
        return found if factor else found.offset

    def tensor_type(self, tensor: torch.Tensor, node: fx.Node) -> TensorType:
        if tensor.dtype not in DTYPES or tensor.dtype == torch.float16:
            raise Refused(f"{self.place(node)}: tensors of {tensor.dtype} are not known; use float32 or int64")
        sizes = [self.integer(size, node) for size in tensor.shape]
        batched = [d for d, size in enumerate(sizes) if isinstance(size, Batch)]
        if not batched:
            return TensorType(DTYPES[tensor.dtype], tuple(sizes), rows=0)
        if len(batched) > 1 or sizes[batched[0]].offset:
            raise Refused(f"{self.place(node)}: its result {list(tensor.shape)} mixes the samples of a batch; "
                          "a pipeline's micro-batches must not depend on each other")
        where = batched[0]
        return TensorType(DTYPES[tensor.dtype], tuple(size for d, size in enumerate(sizes) if d != where),
                          sizes[where].factor, where)

    def place(self, node: fx.Node) -> str:
        return at_node(node.name, self.path(node), target_name(node.target))

    @staticmethod
    def path(node: fx.Node) -> str:
        """Of the innermost module that the node comes from; `relu@1` is the second call of relu."""
        stack = node.meta.get("nn_module_stack") or {}
        path = next(reversed(stack.values()))[0] if stack else ""
        parts = [part.split("@")[0] for part in path.split(".")]
        return ".".join(parts[1:]) if parts[0] == PREFIX else ""

    # Nodes.

    def visit(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.placeholder(node)
        elif node.op == "call_function":
            self.known[node] = self.call(node)
        elif node.op == "output":
            self.output(node)
        elif node.op == "get_attr":
            self.known[node] = getattr(node.graph.owning_module, node.target)

    def placeholder(self, node: fx.Node) -> None:
        exported = self.exported
        if node in self.known:  # of an inlined part: its argument
            return
        if node.name in exported.inputs:
            name = exported.inputs[node.name].name
            self.inputs[name] = self.types[Value(name)] = self.tensor_type(node.meta["val"], node)
            self.known[node] = Value(name)
        elif node.name in exported.parameters:
            self.known[node] = Parameter(exported.parameters[node.name])
        elif node.name in exported.buffers:
            self.known[node] = Buffer(exported.buffers[node.name])
        else:
            tensor = exported.constants[node.name]
            one = tensor.clone()
            self.known[node] = Static({2: one, 3: tensor.clone() if self.writes else one}, waves=frequencies_in(one))

    def output(self, node: fx.Node) -> None:
        results = node.args[0] if isinstance(node.args[0], (list, tuple)) else node.args
        for made in results:
            value = self.known[made]
            if not isinstance(value, Value) or value.producer in self.inputs:
                raise Refused("an output of the module does not depend on its inputs and parameters; nothing could be "
                              "trained")
            self.outputs.append(value)

    def call(self, node: fx.Node) -> Any:
        if any(part in target_name(node.target).split("::")[-1].split(".")[0] for part in IGNORED):
            return None
        if node.target is operator.getitem and not isinstance(node.meta.get("val"), (int, torch.SymInt)):
            return self.known[node.args[0]][node.args[1]]
        if isinstance(node.meta.get("val"), (bool, torch.SymBool)):
            return None  # read by assertions only
        if isinstance(node.meta.get("val"), (int, torch.SymInt)):
            return self.integer(node.meta["val"], node)
        if isinstance(node.meta.get("val"), torch.SymFloat):
            raise Refused(f"{self.place(node)}: a fraction of the number of samples outside of tensors; divide the tensor "
                          "itself, such as loss.sum() / x.shape[0]")
        if "wrap_with_" in str(node.target):
            return self.inlined(node)
        if not isinstance(node.target, torch._ops.OpOverload):
            raise Refused(f"{self.place(node)}: not an operation of PyTorch's own; use tensor operations")
        target, arguments = without_source(node.target, self.arguments(node), node.meta.get("val"))
        if target != node.target:
            arguments["size"] = [self.integer(size, node) for size in arguments["size"]]
        if is_static(arguments) and torch.Tag.nondeterministic_seeded not in target.tags:
            return evaluate(target, arguments, not self.writes)
        if node.target._schema.is_mutable:
            return self.in_place(node, arguments)
        return self.step(node, with_scalars(target, arguments), arguments)

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """By the names of the schema."""
        given = named_arguments(node.target, node.args, node.kwargs)
        return {name: unpacked(fx.graph.map_arg(value, lambda n: self.known[n])) for name, value in given.items()}

    def step(self, node: fx.Node, target: Any, arguments: dict[str, Any]) -> Any:
        values = node.meta["val"]
        several = isinstance(values, (list, tuple))
        if not several and not isinstance(values, torch.Tensor):
            raise Refused(f"{self.place(node)}: its result is a {type(values).__name__}, which depends on values of a "
                          f"tensor{LIMITS}")
        if target._schema.name.split("::")[0] != "aten":
            raise Refused(f"{self.place(node)}: only operations of PyTorch's own (aten) are known; write it with them")
        if "polynomial" in target._schema.name:
            raise Refused(f"{self.place(node)}: takes as long as its degree is high, so a model may not call it; write it out")
        for option, reason in (("sparse", "its gradient is sparse, those of a model are dense"),
                               ("scale_grad_by_freq", "its gradient counts over the batch, which a pipeline has in parts")):
            if arguments.get(option) is True:
                raise Refused(f"{self.place(node)}: {reason}; set {option}=False")
        outputs = [self.tensor_type(value, node) for value in (values if several else [values])]
        if target == aten.squeeze.default:  # never of the batch, even if it is one sample
            sizes = node.args[0].meta["val"].shape
            target = aten.squeeze.dims
            arguments["dim"] = [d for d, size in enumerate(sizes) if isinstance(size, int) and size == 1]
        if target in noops.CASTS:
            target, arguments = aten.to.dtype, {"self": arguments["self"], "dtype": values.dtype}
        self.results[result_key(node)] = (node.name, outputs[0].dtype)
        self.casts |= torch.float32 in tensors(arguments, torch.dtype)
        weight = arguments.get("self")
        if target in noops.CASTS and isinstance(weight, Parameter) and node.args[0].meta["val"].dtype == values.dtype:
            return weight
        arguments = frozen(arguments) if self.writes else arguments
        made = aten_step(node.name, self.path(node), target, arguments, outputs)
        same = noops.input_of(made, self.type_of)
        if same is None:
            self.steps.append(made)
            for k, output in enumerate(outputs):
                self.types[Value(node.name, k)] = output
            if several:
                return [Value(node.name, k) for k in range(len(outputs))]
            same = Value(node.name)
        return self.wrapped(node, target, same) if values.dtype in NARROW else same

    def wrapped(self, node: fx.Node, target: Any, value: Value) -> Value:
        """A model has int64 for the narrow integers, which wrap around: as (x + half) mod 2^bits - half."""
        sources = {source.meta["val"].dtype for source in node.all_input_nodes
                   if isinstance(source.meta.get("val"), torch.Tensor)}
        inside = sources and sources <= {torch.bool, node.meta["val"].dtype}
        if inside and (target in noops.CASTS or is_view(node) or target._schema.name.split("::")[1] in noops.MOVING):
            return value
        half = 2 ** (torch.iinfo(node.meta["val"].dtype).bits - 1)
        for suffix, call, number in (("raised", aten.add.Scalar, half), ("wrapped", aten.remainder.Scalar, 2 * half),
                                     ("narrow", aten.sub.Scalar, half)):
            made = Value(f"{node.name}_{suffix}")
            self.steps.append(aten_step(made.producer, self.path(node), call, {"self": value, "other": number},
                                        [self.types[value]]))
            self.types[made], value = self.types[value], made
        return value

    def type_of(self, value: Value) -> TensorType:
        return self.types[value]

    def inlined(self, node: fx.Node) -> Any:
        """A part that runs without gradients (or without autocast): its nodes, then cut off from the gradient."""
        place = next(i for i, a in enumerate(node.args) if isinstance(a, fx.Node) and a.op == "get_attr")
        body = self.known[node.args[place]]
        for parameter, argument in zip(body.graph.find_nodes(op="placeholder"), node.args[place + 1:]):
            self.known[parameter] = self.known[argument] if isinstance(argument, fx.Node) else argument
        results: list[Any] = []
        for inner in body.graph.nodes:
            if inner.op == "output":
                results = [self.known[n] if isinstance(n, fx.Node) else n for n in inner.args[0]]
            else:
                self.visit(inner)
        for inner in body.graph.nodes:
            self.known.pop(inner, None)
        if "grad" not in str(node.target):
            return results
        return [self.detached(node, k, value) for k, value in enumerate(results)]

    def detached(self, node: fx.Node, k: int, value: Any) -> Any:
        if not isinstance(value, Value):
            return value
        name, kind = f"{node.name}_{k}", self.types[value]
        self.steps.append(aten_step(name, self.path(node), aten.detach.default, {"self": value}, [kind]))
        self.types[Value(name)] = kind
        return Value(name)

    # Operations in place.

    def in_place(self, node: fx.Node, arguments: dict[str, Any]) -> Any:
        written = next(a.name for a in node.target._schema.arguments if a.alias_info and a.alias_info.is_write)
        old = arguments[written]
        if isinstance(old, Buffer) and old.name.endswith("num_batches_tracked"):
            return old  # batch norm's counter of steps is not part of a model
        if isinstance(old, (Buffer, Parameter)):
            raise Refused(f"{self.place(node)} changes {old.name} in forward(); only batch norm's statistics may "
                          "change there")
        if isinstance(old, Value) and old.producer in self.inputs:
            raise Refused(f"{self.place(node)} changes the input {old.producer}; work on a copy: x = x.clone()")
        target = next(a for a in [*node.args, *node.kwargs.values()] if isinstance(a, fx.Node))
        if (root := root_of(target)).name in self.exported.parameters:
            name = self.exported.parameters[root.name]
            raise Refused(f"{self.place(node)} changes the parameter {name} in forward()")
        self.refuse_later_readers(node, target)
        twin = self.twin(node)
        names = dict(zip((a.name for a in node.target._schema.arguments), (a.name for a in twin._schema.arguments)))
        arguments = {names[name]: value for name, value in arguments.items()}
        return self.step(node, with_scalars(twin, arguments), arguments)

    def twin(self, node: fx.Node) -> Any:
        """relu for relu_; bernoulli_ stays what it is, for draws.py to judge."""
        if torch.Tag.nondeterministic_seeded in node.target.tags and "dropout" not in str(node.target):
            return node.target
        name = node.target._schema.name.split("::")[1].removesuffix("_")
        packet = getattr(aten, name, None)
        twin = getattr(packet, node.target._overloadname, None)
        if twin is None:
            raise Refused(f"{self.place(node)}: works in place and has no twin; assign its result instead")
        return twin

    def refuse_later_readers(self, node: fx.Node, target: fx.Node) -> None:
        """Whoever shares memory with the target must not be read after the node that changes it."""
        order = {n: i for i, n in enumerate(node.graph.nodes)}
        for sharing in shares_memory(target):
            for reader in sharing.users:
                harmless = reader is node or reader.op == "output" or is_view(reader)
                if order[reader] > order[node] and not harmless:
                    raise Refused(f"{self.place(node)} works in place, and {self.place(reader)} reads the old tensor "
                                  "later; assign a new tensor instead (x = x + y; torch.cat or torch.where for parts)")


def result_key(node: fx.Node) -> str:
    """The node's name; of a cast, whose number says how many came before, what it casts. In another type a module may
    cast more often."""
    if node.target not in noops.CASTS:
        return node.name
    source = node.all_input_nodes[0]
    return f"{result_key(source)}.cast{[user for user in source.users if user.target in noops.CASTS].index(node)}"


def writes_constants(exported: Exported) -> bool:
    """An operation in place may change what depends on neither data nor weights; then who reads it keeps a copy."""
    fixed: set[fx.Node] = set()
    weights = exported.inputs.keys() | exported.parameters.keys() | exported.buffers.keys()
    for node in exported.program.graph.nodes:
        if all(source in fixed for source in node.all_input_nodes) and node.name not in weights:
            fixed.add(node)
        if is_mutable(node) and node.args[0] in fixed:
            return True
    parts = (part for part in exported.program.graph_module.modules() if isinstance(part, fx.GraphModule))
    return any(is_mutable(node) for part in parts if part is not exported.program.graph_module for node in part.graph.nodes)


def is_mutable(node: fx.Node) -> bool:
    return getattr(getattr(node.target, "_schema", None), "is_mutable", False)


def statistics(steps: list[Step], tensors_by_name: dict[str, torch.Tensor]) -> set[str]:
    """Buffers that batch norm updates, by their names; refused where two calls update one."""
    found: set[str] = set()
    writers: dict[int, Step] = {}
    for step in steps:
        for buffer in tensors(step.arguments, Buffer) if step.target == aten.batch_norm.default else ():
            found.add(buffer.name)
            first = writers.setdefault(id(tensors_by_name[buffer.name]), step)
            if first is not step:
                raise Refused(f"{step.place()} updates {buffer.name} a second time in a step, behind the node {first.name}; "
                              "in a model every call has running statistics of its own. Give each call its own batch norm")
    return found


def without_source(target: Any, arguments: dict[str, Any], made: Any) -> tuple[Any, dict[str, Any]]:
    """zeros(...) for x.new_zeros(...) and zeros_like(x), which do not depend on x."""
    plain = FACTORIES.get(target)
    if plain is None:
        return target, arguments
    fill = {"fill_value": arguments["fill_value"]} if "fill_value" in arguments else {}
    return plain, {"size": list(made.shape), "dtype": made.dtype, **fill}


def is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable and any(r.alias_info for r in schema.returns)


def root_of(node: fx.Node) -> fx.Node:
    """What it is a view of, in the end."""
    while is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def shares_memory(node: fx.Node) -> set[fx.Node]:
    """The node, what it is a view of, and all views of that."""
    root = root_of(node)
    found, open_nodes = {root}, [root]
    while open_nodes:
        for user in open_nodes.pop().users:
            if is_view(user) and user not in found:
                found.add(user)
                open_nodes.append(user)
    return found


def unpacked(value: Any) -> Any:
    """fx's immutable lists as plain ones."""
    if isinstance(value, (list, tuple)):
        return [unpacked(element) for element in value]
    return value


def with_scalars(target: Any, arguments: dict[str, Any]) -> Any:
    """mul.Scalar for mul.Tensor with a number: Python hands numbers to tensor arguments, a dispatcher does not."""
    wanted = {a.name for a in target._schema.arguments if str(a.type) == "Tensor"}
    numbers = [name for name in wanted if isinstance(arguments.get(name), (int, float, bool, Batch))]
    if not numbers:
        return target
    packet = getattr(aten, target._schema.name.split("::")[1])
    overload = target._overloadname.replace("Tensor", "Scalar")
    if len(numbers) == 1 and overload in packet.overloads() and overload != target._overloadname:
        return getattr(packet, overload)
    for name in numbers:
        value = arguments[name]
        if isinstance(value, Batch):
            raise Refused(f"{target_name(target)} takes the number of samples as \"{name}\"; add, multiply or divide by it")
        arguments[name] = Constant(torch.tensor(value, dtype=torch.float32 if isinstance(value, float) else None))
    return target
