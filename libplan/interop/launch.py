#!/usr/bin/env python3
"""Trains a PyTorch module by the plan that stands beside this file, one process for each worker.

  torchrun --nproc-per-node RANKS launch.py MODULE:FACTORY --data MODULE:BATCHES --lr 0.05 --steps 100

FACTORY and BATCHES are found in an importable module or a FILE.py; either may be a call, FILE.py:make(width=8). FACTORY
gives the module, with the same weights in every process. BATCHES gives an iterable of mini-batches, each a tuple of
inputs and, at its end, the target. modules.json says where stages begin, schedule.csv what each worker does,
settings.json the rest.
"""
import argparse
import csv
import importlib
import importlib.util
import json
import os
import pathlib
import re

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

HERE = pathlib.Path(__file__).resolve().parent
SETTINGS = json.loads((HERE / "settings.json").read_text())
F = torch.nn.functional
SAID = SETTINGS["loss_attributes"]


def cross_entropy(logits, label):
    if logits.dim() > 3:  # of pixels, whose classes come first
        return F.cross_entropy(logits, label, **SAID)
    return F.cross_entropy(logits.flatten(0, -2), label.flatten(), **SAID)


LOSSES = {"cross_entropy": cross_entropy, "mse": F.mse_loss,
          "binary_cross_entropy": F.binary_cross_entropy_with_logits}


def find(name):
    """The object that MODULE:EXPRESSION names; what is no module and can be called, is."""
    where, expression = name.split(":", 1)
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(pathlib.Path(where).stem, where)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    found = eval(expression, vars(module))
    return found() if callable(found) and not isinstance(found, torch.nn.Module) else found


def make_schedule(module, example, loss, device, worker, group):
    """The stages of this process, and what runs them in the order of the plan."""
    first_modules = [names[0] for names in json.loads((HERE / "modules.json").read_text())]
    pipe = pipeline(module, example, split_spec=dict.fromkeys(first_modules[1:], SplitPoint.BEGINNING))
    row = list(csv.reader((HERE / "schedule.csv").open(newline="")))[worker]
    held = sorted({int(re.match(r"\d+", cell).group()) for cell in row})
    stages = [pipe.build_stage(stage, device, group) for stage in held]
    if device.type == "cpu":  # gloo needs no first round of messages, and cannot send one from a process to itself
        for stage in stages:
            stage._get_init_p2p_neighbors_ops = list
    schedule = _PipelineScheduleRuntime(stages, SETTINGS["micro_batches"] // SETTINGS["data_parallel_degree"],
                                        loss_fn=loss)
    schedule._load_csv(HERE / "schedule.csv")
    return stages, schedule


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factory", help="MODULE:FACTORY or FILE.py:FACTORY")
    parser.add_argument("--data", required=True, help="MODULE:BATCHES or FILE.py:BATCHES")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD")
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--loss", default=SETTINGS["loss"], choices=sorted(LOSSES))
    options = parser.parse_args()

    degree, replicas = SETTINGS["pipeline_parallel_degree"], SETTINGS["data_parallel_degree"]
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    if dist.get_world_size() != degree * replicas:
        raise SystemExit(f"{dist.get_world_size()} processes were started; this plan is for {degree * replicas}")
    replica, worker = divmod(dist.get_rank(), degree)
    pipelines = [dist.new_group(list(range(r * degree, (r + 1) * degree))) for r in range(replicas)]
    copies = [dist.new_group(list(range(w, degree * replicas, degree))) for w in range(degree)]

    dtype = getattr(torch, SETTINGS["dtype"])
    batches = ([x.to(dtype) if x.is_floating_point() else x for x in batch] for batch in find(options.data))
    batch = next(batches)
    example = tuple(x[:SETTINGS["micro_batch_size"]] for x in batch[:-1])
    stages, schedule = make_schedule(find(options.factory).to(dtype).train(), example, LOSSES[options.loss], device,
                                     worker, pipelines[replica])
    parameters = [p for stage in stages for p in stage.submod.parameters() if p.requires_grad]
    arguments = {"lr": options.lr, "weight_decay": options.weight_decay}
    if SETTINGS["optimizer"] == "SGD":
        arguments["momentum"] = options.momentum
    optimizer_class = getattr(torch.optim, SETTINGS["optimizer"])
    optimizer = None  # of stages that train nothing
    if not parameters:
        pass
    elif SETTINGS["shard"] == "optimizer":
        optimizer = ZeroRedundancyOptimizer(parameters, optimizer_class, process_group=copies[worker], **arguments)
    else:
        optimizer = optimizer_class(parameters, **arguments)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=SETTINGS["precision"] == "autocast")
    for step in range(options.steps):
        *inputs, target = (torch.cat(x.tensor_split(SETTINGS["micro_batches"])[replica::replicas]).to(device)
                           for x in batch)
        for p in parameters:
            p.grad = None
        losses = []
        with autocast:
            schedule.step(*(inputs if stages[0].is_first else ()), target=target if stages[-1].is_last else None,
                          losses=losses)
        for p in parameters if replicas > 1 else ():
            if p.grad is not None:  # some weights are not used
                dist.all_reduce(p.grad, group=copies[worker])
                p.grad /= replicas
        if optimizer:
            optimizer.step()
        if stages[-1].is_last:
            loss = torch.stack(losses).mean()
            if replicas > 1:
                dist.all_reduce(loss, group=copies[worker])
            if replica == 0:
                print(f"step {step + 1}: loss {loss.item() / replicas:.7g}", flush=True)
        batch = next(batches, None)
        if batch is None:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
