#!/bin/bash
# Made by `tilery submit`.
# {{TEMPLATE}} Words in double braces are filled in; a line with a word that has no value is left out, as this one.
#SBATCH --job-name={{NAME}}
#SBATCH --output={{LOG}}
#SBATCH --open-mode=append
#SBATCH --chdir={{FOLDER}}
#SBATCH --nodes={{NODES}}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive{{EXCLUSIVE}}
#SBATCH --cpus-per-task={{CPUS}}
#SBATCH --mem={{MEMORY}}
#SBATCH --gpus-per-node={{GPUS}}
#SBATCH --time={{MINUTES}}
#SBATCH --account={{ACCOUNT}}
#SBATCH --partition={{PARTITION}}
# A node that is lost costs what it was at, not the job; USR1 comes GRACE seconds before the time limit.
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --signal=B:USR1@{{GRACE}}

{{ENVIRONMENT}}

run= asked=
ask() { asked=$1; [ -z "$run" ] || kill -USR1 "$run" 2>/dev/null; }
trap 'ask USR1' USR1  # the time limit is near: the run is to end with 75, and goes on when the job is queued again
trap 'ask TERM' TERM  # the job is cancelled or preempted: what Slurm does with it afterwards is Slurm's to say

# The scheduler, on the first node. Workers come from all of them, and find it by the work folder.
{{RUN}} &
run=$!
srun --no-kill --kill-on-bad-exit=0 --wait=0 --cpu-bind=none ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
  {{WORKER}} &
hosts=$!

alone=0
while kill -0 "$run" 2>/dev/null; do
  kill -0 "$hosts" 2>/dev/null || alone=$((alone + 1))
  if [ "$alone" = 30 ]; then
    echo "no host is left that takes part; the run is asked to end" >&2
    kill -USR1 "$run" 2>/dev/null
  fi
  sleep 1 &
  wait $!
done
wait "$run"
code=$?

# Hosts end with the run; srun may go on waiting for one that is lost.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  kill -0 "$hosts" 2>/dev/null || break
  sleep 1 &
  wait $!
done
kill "$hosts" 2>/dev/null

if [ "$code" = 75 ] && [ "$asked" = USR1 ]; then
  echo "queued again, to go on where it stopped"
  scontrol requeue "$SLURM_JOB_ID" && exit 75
fi
[ "$code" != {{ACCEPTED}} ] || code=0  # finished, with failed items: no reason to keep later stages from running
exit "$code"
