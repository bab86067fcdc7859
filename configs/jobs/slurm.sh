#!/usr/bin/env bash
# sbatch configs/jobs/slurm.sh PLAN [PP-RUN OPTIONS...]
# Trains a plan on the nodes of a Slurm job, with checkpoints. Ranks and nodes that are lost do not end it: it goes on with what is
# left, by a new plan where it has to (profile.json is the profile that the plan was made from). A job that is submitted again, or
# requeued, goes on, too.
# Change the lines below to the plan: as many tasks on a node as the plan has devices there, and as many cores for each. With
# GPUs take out one # of the last. The folder and pp-run's path are the same on all nodes.
#
#   sbatch configs/jobs/slurm.sh plan.json --data configs/data/digits --epochs 20 -o report.json
#SBATCH --job-name=pp-run
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --no-kill
##SBATCH --gpus-per-node=4
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: sbatch slurm.sh PLAN [PP-RUN OPTIONS...]" >&2 && exit 2; }
plan=$1
shift
hosts=hosts-$SLURM_JOB_ID.txt
checkpoints=checkpoints-$(basename "$plan" .json)
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/ slots=$SLURM_NTASKS_PER_NODE/" >"$hosts"
again=()
[ ! -e profile.json ] || again=(--profile profile.json)
exec pp-run launch "$plan" --hosts "$hosts" --launcher srun --keep-going "${again[@]}" -- "$@" --checkpoint "$checkpoints" \
  --resume "$checkpoints" --every 10min
