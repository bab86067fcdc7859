#!/bin/bash
# In place of mpirun: one rank does the work of all of them. A host X is away while there is a file away-X. Line k of the file `events`
# says what happens in the k-th start, once there is a checkpoint so many steps after the one that it found: `STEP away HOST` (its ranks are killed),
# `STEP hang HOST` (the same, but the
# launcher waits for it, although a rank has said that it failed), `STEP back HOST`, `STEP kill`, `STEP stop` (the training is interrupted);
# `- exit CODE`: the start ends before there is a rank. The hosts of each start are added to the file `starts`.
hosts=
while [ "${1##*/}" != pp-run ]; do
  [ "$1" != --host ] || hosts=$2
  shift
done
for host in ${hosts//,/ }; do [ ! -e "away-$host" ] || exit 213; done
[ "$2" = train ] || exec "$@"
echo "$hosts" >>starts
read -r step what host < <(sed -n "$(wc -l <starts)p" events)
[ "$what" != exit ] || exit "$host"
newest() {
  local step
  step=$(find ck -name 'step-*' 2>/dev/null | sed -n 's/.*step-0*//p' | sort -n | tail -n 1)
  echo "${step:-0}"
}
found=$(newest)
"$@" &
child=$!
trap 'kill -USR1 $child' USR1
while kill -0 $child 2>/dev/null; do
  if [ -n "$what" ] && [ "$(newest)" -ge $((found + step)) ]; then
    case $what in
      away | hang) touch "away-$host" ;;
      back) rm "away-$host" ;;
      stop) kill -USR1 $child ;;
    esac
    if [ "$what" = away ] || [ "$what" = kill ]; then
      kill -KILL $child
      wait $child 2>/dev/null
      exit 137
    fi
    if [ "$what" = hang ]; then
      kill -KILL $child
      echo "rank 1 has been silent for 2 s" >ck/launch/failed
      sleep 600
    fi
    what=
  fi
  sleep 0.02
done
wait $child
