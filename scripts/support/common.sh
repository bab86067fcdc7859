# shellcheck shell=bash disable=SC2034
# What the scripts share; sourced, never run. Sets `repo` (the repository root) and `cache` (where LibTorch is unpacked).
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# scripts/cmake/FindLibTorch.cmake computes the same folder from the same variables.
cache=${PP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/pp}
script=$(basename "$0")

say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
  say "$*"
  exit 1
}
usage_error() {
  say "$*; see scripts/$script --help"
  exit 2
}

# The comment block below the first line of the calling script is its help.
show_help() { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }

# timed WORDS... -- COMMAND...: runs the command and says how long it took.
timed() {
  local words=() begin=$SECONDS
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  "$@" || return
  say "${words[*]}: $((SECONDS - begin)) s"
}

# Parallel compilers: one a core, but no more than memory holds (a file that sees LibTorch takes up to 1.5 GiB).
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) / 1572864))
  [ "$memory" -ge 1 ] || memory=1
  echo $((memory < cores ? memory : cores))
}

# Configures and builds a preset; further arguments are options of CMake (-D...), then targets (default: all).
build() {
  local preset=$1 options=() targets=()
  shift
  while [[ ${1:-} == -D* ]]; do
    options+=("$1")
    shift
  done
  [ $# -eq 0 ] || targets=(--target "$@")
  cd "$repo" || exit
  timed "configured (preset $preset)" -- cmake --preset "$preset" "${options[@]}" >&2
  timed "built (preset $preset, $(jobs) jobs)" -- cmake --build --preset "$preset" -j "$(jobs)" "${targets[@]}" >&2
}
