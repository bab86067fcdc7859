#!/usr/bin/env bash
# configs/jobs/hosts.sh HOSTS MODEL MINI_BATCH [PP-RUN OPTIONS...]
# From machines that ssh reaches to a trained model: measures the links between them and the model on them, plans, trains.
# HOSTS has lines `node1 slots=4`: a device, of one core or one GPU, for each slot. All machines see this folder under this name,
# and pp-profile, pp-plan and pp-run are in its path. Documents that are there are used again.
#
#   configs/jobs/hosts.sh hosts.txt configs/models/digits-lenet.json 64 --data configs/data/digits --epochs 20 -o report.json
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0" >&2 && exit 2; }
hosts=$1 model=$2 mini_batch=$3
shift 3

slots=$(sed 's/#.*//' "$hosts" | awk 'NF { n = 1; for (i = 2; i <= NF; i++) if (sub(/^slots=/, "", $i)) n = $i; sum += n } END { print sum }')
ranks=(mpirun -n "$slots" --hostfile "$hosts" --map-by slot --bind-to core)
[ -e cluster.json ] || "${ranks[@]}" pp-profile links -o cluster.json
[ -e profile.json ] || "${ranks[@]}" pp-profile run "$model" --micro-batch-sizes 4,8,16,32 -o profile.json --cluster cluster.json
[ -e plan.json ] || pp-plan profile.json --cluster cluster.json --mini-batch "$mini_batch" -o plan.json
exec pp-run launch plan.json --hosts "$hosts" -- "$@"
