"""Why a module cannot be imported: always with a place and a remedy."""


class Refused(Exception):
    """Says what, where, why, and what to do. Ends the program with exit code 2."""


def at_node(name: str, path: str, operation: str) -> str:
    """`layer1.0: aten::add_ (node add_)`: how messages name an operation of the module."""
    return f"{path or 'the module itself'}: {operation} (node {name})"


def first_lines(error: BaseException, count: int = 6) -> str:
    """What an exception of PyTorch says, without its pages of advice."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    return "\n  ".join(lines[:count])
