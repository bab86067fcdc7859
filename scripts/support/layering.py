"""layering.py ROOT: checks who may include whom, by reading #include lines, that documents which sources name are there, that
no C function is called by an unqualified name, and that names of schedules and operations are not compared.
Prints one line per violation; exit 1 if any.

The rules are those of the project's structure: dependencies point one way (core -> model and device -> measure,
core -> libplan, all of these -> librun -> apps), the planner never sees LibTorch, and no file sees both LibTorch and spdlog, whose fmt collide.
"""

import dataclasses
import pathlib
import re
import sys

ROOMS = ["apps", "libprofile", "libplan", "librun", "tests"]
SUFFIXES = {".h", ".cpp", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

TORCH = r"(torch|ATen|c10|caffe2)/"
CUDA = r"(cuda|cublas|cudnn|nccl|nvtx3/|cupti)"
SHELL = r"(CLI/|spdlog/|fmt/)"


@dataclasses.dataclass(frozen=True)
class Rule:
    """No file whose path matches `files` (and not `but`) may include what matches `forbidden`."""

    files: str
    forbidden: str
    reason: str
    remedy: str
    but: str = r"$^"


# Rooms of the planner's way from a request to a plan: each may include itself and those in front of it.
PLANNER = ["cost", "request", "price", "search/exact", "search/finalist", "search/candidates", "search/zero_bubble",
           "search/improve", "search", "answer", "report"]

PLANNER_RULES = [
    Rule(rf"libplan/{room}/[^/]*$", "libplan/(" + "|".join(f"{later}/[^/]*$" for later in PLANNER[i + 1:]) + ")",
         f"libplan/{room} comes before it on the way from a request to a plan", "move what both need to the earlier room")
    for i, room in enumerate(PLANNER[:-1])
]

# Rooms of the runtime, from the ground up: each may include itself and those in front of it.
RUNTIME = ["options", "threads", "data", "checkpoint", "transport", "stage", "swap", "server", "wiring", "report",
           "setup", "control", "worker", "drive", "infer"]

RUNTIME_RULES = [
    Rule(rf"librun/{room}/", "librun/((" + "|".join(RUNTIME[i + 1:] + ["links"]) + r")/|[^/]*$)",
         f"librun/{room} is below it", "move what both need down, or pass the value in as an argument")
    for i, room in enumerate(RUNTIME)
]

RULES = PLANNER_RULES + RUNTIME_RULES + [
    Rule(r"(libplan|libprofile/core|libprofile/report|libprofile/estimate|libprofile/model/families)/", f"({TORCH}|{CUDA})",
         "this room is free of LibTorch and CUDA", "move the code to libprofile/model, libprofile/device or librun"),
    Rule(r"libprofile/core/", r"(libprofile/(?!core/)|libplan/|librun/|apps/)",
         "core includes only the standard library and nlohmann", "move what is needed down into libprofile/core"),
    Rule(r"libprofile/core/ops/", r"libprofile/core/(model/|profile\.h|cluster\.h)",
         "an operation knows the types of its inputs and no model", "pass the value in as an argument"),
    Rule(r"libprofile/core/model/", r"libprofile/core/(profile|cluster)\.h",
         "a model knows nothing of who measures or runs it", "pass the value in as an argument"),
    Rule(r"libprofile/report/", r"(libprofile/(?!core/|report/)|libplan/|librun/|apps/)",
         "report may include core only", "pass the value in as an argument, or move its type to libprofile/core"),
    Rule(r"libprofile/estimate/", r"(libprofile/(?!core/|estimate/)|libplan/|librun/|apps/)",
         "an estimate needs shapes and figures only", "pass the value in as an argument, or move its type to libprofile/core"),
    Rule(r"libprofile/device/", r"(libprofile/(?!core/|device/)|libplan/|librun/|apps/)",
         "a device knows nothing of what runs on it", "pass the value in as an argument"),
    Rule(r"libprofile/model/", r"(libprofile/(device|measure)/|libplan/|librun/|apps/)",
         "model may include core only", "pass the value in as an argument, or move its type to libprofile/core"),
    Rule(r"libprofile/measure/", r"(libplan/|librun/|apps/)",
         "measure may include core, device and model only", "pass the value in as an argument, or move its type to libprofile/core"),
    Rule(r"libplan/", r"(libprofile/(?!core/)|librun/|apps/)",
         "the planner may include core only", "read the number from the Profile or the Cluster document instead"),
    Rule(r"libplan/schedule/", r"libplan/(?!schedule/)",
         "programs depend on nothing but core", "pass the value in as an argument"),
    Rule(r"libplan/simulate/", r"libplan/(?!schedule/|simulate/)",
         "the simulator knows programs and their costs only", "pass the value in as an argument"),
    Rule(r"libplan/draw/", r"libplan/(?!schedule/|simulate/|draw/)",
         "pictures are drawn of programs and what the simulator says", "pass the value in as an argument"),
    Rule(r"libplan/cost/", r"libplan/(simulate|draw|explorer|peers|interop)/",
         "what things cost does not depend on who searches or simulates", "move what both need to libplan/cost"),
    Rule(r"libplan/search/exact/", r"libplan/(?!search/exact/|cost/)",
         "the exact searches know loads and memory only", "pass the value in as an argument"),
    Rule(r"libplan/(request|price|search|answer)/", r"libplan/(draw|explorer|interop|peers)/",
         "the planner knows neither pictures nor other planners", "move the code to libplan/report or libplan/peers"),
    Rule(r"libplan/(peers|interop)/", r"libplan/(report|draw)/",
         "other planners and trainers need no report", "move the code to libplan/report"),
    Rule(r"librun/", r"apps/", "dependencies point from apps to libraries", "move the code into the library, or pass a callback"),
    Rule(r"librun/links/", r"librun/(?!links/|threads/|transport/)",
         "the link meter knows transports and threads only", "pass the value in as an argument"),
    Rule(r"librun/[^/]*$", r"librun/links/", "no run needs the link meter", "move what both need to librun/transport"),
    Rule(r"(libprofile|libplan|librun)/", SHELL,
         "only apps parse command lines and log", "return a value, throw pp::Error, or tell the library's Observer"),
    Rule(r"(apps/(?!cli/)|tests/)", SHELL,
         "CLI11 and spdlog take seconds to compile wherever they are seen", "use apps/cli/command.h and apps/cli/progress.h"),
    Rule(r".*\.(h|cu)$", r"torch/torch\.h$",
         "torch/torch.h costs 13 s wherever it is included", "include ATen/core/Tensor.h in headers"),
    Rule(r".*", r"doctest/doctest\.h$", "c10's CHECK would win and abort the process",
         "include tests/support/doctest.h last, or tests/support/torch_test.h", but=r"tests/support/(doctest\.h|main\.cpp)$"),
]

DOCUMENT = re.compile(r"(?<![\w./-])\w[\w./-]*\.md\b")
REGISTRY = "libplan/schedule/registry.cpp"
OPS = "libprofile/core/ops/"
ROW_NAME = re.compile(r'\.name = "([\w-]+)"')
COMPARED = re.compile(r'(?:[=!]=|\bstarts_with\(|\bcontains\(|\bends_with\(|\bcompare\()\s*"([\w-]+)"|"([\w-]+)"(?:sv)?\s*[=!]=')
# Of <math.h>, which every source sees: a name that was meant to be a variable still compiles.
OF_C = re.compile(r"(?<![\w.>:])(finite|is(?:inf|nan|finite|normal)|signbit|[yj][01n]|l?gamma|significand|logb|drem|scalb|f?abs)\s*\(")
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
GETENV = re.compile(r"\b(secure_)?(getenv|setenv|putenv)\s*\(")


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    path: str


def read_includes(text: str) -> list[Include]:
    matches = ((number, INCLUDE.match(line)) for number, line in enumerate(text.splitlines(), 1))
    return [Include(number, match.group(2)) for number, match in matches if match]


def check_rules(includes: dict[str, list[Include]]) -> list[str]:
    return [f"{file}:{include.line}: includes {include.path}, but {rule.reason}; {rule.remedy}"
            for file, list_ in includes.items() for include in list_ for rule in RULES
            if re.match(rule.files, file) and not re.match(rule.but, file) and re.match(rule.forbidden, include.path)]


def check_environment(texts: dict[str, str]) -> list[str]:
    return [f"{file}:{number}: reads or changes the environment, but only apps may; pass the value in as an argument"
            for file, text in texts.items() if not file.startswith(("apps/", "tests/"))
            for number, line in enumerate(text.splitlines(), 1) if GETENV.search(line.split("//")[0])]


def check_unqualified(texts: dict[str, str]) -> list[str]:
    return [f"{file}:{number}: calls C's {match.group(1)}(); write std:: before it, or name what was meant"
            for file, text in texts.items() for number, line in enumerate(text.splitlines(), 1)
            for match in OF_C.finditer(QUOTED.sub('""', line.split("//")[0]))]


def check_documents(root: pathlib.Path, texts: dict[str, str]) -> list[str]:
    """A document that a source names stands beside it, above it, or where the path from the root says."""
    def resolves(file: str, name: str) -> bool:
        return any((folder / name).is_file() for folder in (root / file).parents if folder.is_relative_to(root))

    return [f"{file}:{number}: names {name}, which is not in the repository; say here what the reader needs of it"
            for file, text in texts.items()
            for number, line in enumerate(text.splitlines(), 1) for name in DOCUMENT.findall(line)
            if not resolves(file, name)]


def check_names(texts: dict[str, str]) -> list[str]:
    """Names of schedules and operations are compared nowhere: what other code asks of one is a property of its row."""
    rows = {file: ROW_NAME.findall(text) for file, text in texts.items() if file == REGISTRY or file.startswith(OPS)}
    names = {name for found in rows.values() for name in found}
    return [f'{file}:{number}: compares with "{match.group(1) or match.group(2)}", a name of the registry of schedules or the op '
            "table; make what is asked a property of its row"
            for file, text in texts.items() if not file.startswith("tests/")
            for number, line in enumerate(text.splitlines(), 1) for match in COMPARED.finditer(line.split("//")[0])
            if (match.group(1) or match.group(2)) in names]


def torch_chain(header: str, includes: dict[str, list[Include]], seen: set[str]) -> list[str]:
    """The includes that lead from `header` to a Torch header, empty if none do."""
    for include in includes.get(header, []):
        if re.match(TORCH, include.path):
            return [include.path]
        if include.path in includes and include.path not in seen:
            seen.add(include.path)
            chain = torch_chain(include.path, includes, seen)
            if chain:
                return [include.path, *chain]
    return []


def check_apps(includes: dict[str, list[Include]]) -> list[str]:
    found = []
    for file in includes:
        chain = torch_chain(file, includes, {file}) if file.startswith("apps/") else []
        if chain:
            line = next(include.line for include in includes[file] if include.path == chain[0])
            found.append(f"{file}:{line}: sees LibTorch through {' -> '.join(chain)}, and its fmt collides with spdlog's; "
                         "keep Torch out of that header and link it privately")
    return found


def main() -> None:
    root = pathlib.Path(sys.argv[1])
    files = sorted(p for room in ROOMS for p in (root / room).rglob("*") if p.suffix in SUFFIXES)
    texts = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in files}
    includes = {file: read_includes(text) for file, text in texts.items()}
    violations = check_rules(includes) + check_environment(texts) + check_apps(includes) + check_documents(root, texts)
    violations += check_names(texts) + check_unqualified(texts)
    for violation in violations:
        print(violation)
    if not files:
        sys.exit(f"layering.py: no sources below {root}")
    print(f"layering: {len(files)} files, {len(violations)} violations")
    sys.exit(1 if violations else 0)


main()
