#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# srun starts the ranks.  Slurm runs on four nodes, which are hosts of contrib/hosts.sh.  Where these cannot
# be had, it runs on one node, this machine, on ports of the loopback interface.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"

PATH=$PATH:/usr/sbin
for program in munged slurmctld slurmd srun sbatch; do
	command -v $program >/dev/null || test_skip_all "$program is not installed"
done
[ "$(id -u)" -eq 0 ] || test_skip_all "only root starts Slurm's daemons"

if [ -z "${PD_NETNS-}" ]; then
	on=0
	sh "$PD_SOURCE/contrib/hosts.sh" 4 sh "$PD_SOURCE/test/${0##*/}" 2>errors || on=$?
	[ $on -eq 77 ] || { cat errors >&2; exit $on; }
fi
self=$(hostname -s)
nodes=$(echo "${PD_HOSTS:-$self}" | tr , ' ')
node_count=$(echo "$nodes" | wc -w)

# address NODE: prints the address of a node.
address() {
	[ -n "${PD_HOSTS-}" ] && echo "10.99.0.${1#h}" || echo 127.0.0.1
}

slurm=$test_directory/slurm port=$((20000 + $$ % 20000))
mkdir "$slurm"
for node in state $nodes; do
	mkdir "$slurm/$node" "$slurm/$node.tmp"
done
end_slurm() {
	for pid in "$slurm"/*.pid; do
		[ ! -s "$pid" ] || kill "$(cat "$pid")" 2>/dev/null
	done
	sleep 0.3
	cd /
	rm -rf "$test_directory"
}
trap end_slurm EXIT
head -c 128 /dev/urandom >"$slurm/munge.key"
chmod 600 "$slurm/munge.key"
cat >"$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$self($(address "$self"))
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket
SlurmUser=root
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
KillWait=10
TmpFS=$slurm/%n.tmp
SlurmdParameters=config_overrides
$(for node in $nodes; do
	echo "NodeName=$node NodeAddr=$(address "$node") CPUs=4 State=UNKNOWN"
done)
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
END
echo "CgroupPlugin=cgroup/v1" >"$slurm/cgroup.conf"
export SLURM_CONF="$slurm/slurm.conf"

others_begin() {
	for node in $nodes; do
		[ "$node" = "$self" ] || "$PD_ON" "$node" slurmd || return
	done
}

# slurm/started has what keeps Slurm from starting, if anything does.
{
	munged --force --num-threads=1 --key-file="$slurm/munge.key" \
		--socket="$slurm/munge.socket" --pid-file="$slurm/munged.pid" \
		--log-file="$slurm/munged.log" --seed-file="$slurm/munged.seed" &&
	slurmctld -c && slurmd && others_begin
} >"$slurm/started" 2>&1 || test_skip_all "Slurm does not start: $(tail -n 1 "$slurm/started")"
ready() {
	[ "$(timeout 5 sinfo -h -N -o %T 2>/dev/null | grep -c idle)" -eq "$node_count" ]
}
for try in $(seq 600); do
	! ready || break
	sleep 0.1
done
ready || test_skip_all "Slurm has not $node_count nodes: $(tail -qn 1 "$slurm"/*.log | tr '\n' ' ')"

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 2 1 >plan
pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here plan >out.here

step() {
	timeout 600 srun --mpi=pmix --overcommit -N "$node_count" -n 4 "$@" 2>err
}

test_ok "four ranks: weights bit-equal to those without srun" '
	step pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=there plan >out
	same_weights here there
	tail -n 1 out | jq -e ".outcome == \"done\" and .memory == \"as predicted\""
'
test_ok "what is wrong with the input is said once, and srun has the status" '
	status 2 step pd-run --synthetic absent.json
	said "absent.json: cannot open"
'
test_ok "tasks without PMIx would each be a run of their own, and are refused" '
	status 2 timeout 600 srun --mpi=none --overcommit -N "$node_count" -n 4 pd-run --synthetic plan 2>err
	[ "$(grep -c "srun started 4 processes without PMIx" err)" -eq 4 ]
'
test_ok "a rank that is killed is named, also where srun lets the others run on" '
	begin out srun --mpi=pmix --overcommit -N "$node_count" -n 4 pd-run --threads=1 --report-every=1 \
		--synthetic --minibatches=100000000 plan
	for process in /proc/[0-9]*; do
		[ "$(tr "\0" " " <"$process/cmdline" 2>/dev/null)" != "pd-worker 2 " ] ||
			! tr "\0" "\n" <"$process/environ" | grep -qx "SLURM_CONF=$SLURM_CONF" ||
			kill -9 "${process#/proc/}"
	done
	ended 10 3
	said "rank 2 (stage 1 of 3"
	said "was killed by signal 9 (Killed)"
'
# The script in pd-machines(7) runs for ever, on as many nodes as there are, with four ranks on each.
layers=$(jq ".layers | length" residual)
if [ "$node_count" -gt 1 ]; then
	pd-plan --topology="4@10Gbit/s,$node_count@1Gbit/s" \
		--stages="$((layers / 2))x$((2 * node_count)),$((layers - layers / 2))x$((2 * node_count))" residual
else
	plan residual 2 2
fi >plan.json
idx_data data
awk '/^\.Ed/ { copy = 0 } /^#!/ { copy = 1 } copy' "$PD_SOURCE/man/pd-machines.7" |
	sed ':a; /\\e$/ { N; s/\\e\n *//; ta }' |
	sed "s/--nodes=4/--nodes=$node_count/; s/=DIR/=data/; s:=/shared/DIR:=CHECKPOINT:
		s/ pd-run/& --minibatches=100000000 --report-every=10/" >script

# begin_job CHECKPOINT: submits the script as $job, and waits until it trains.
begin_job() {
	sed "s/CHECKPOINT/$1/" script >batch
	job=$(sbatch --parsable batch)
	for try in $(seq 1000); do
		! grep -qs progress "slurm-$job.out" || return 0
		sleep 0.1
	done
	cat "slurm-$job.out"
	return 1
}

# ends_in CHECKPOINT: waits until $job has ended, and checks that another run goes on from there.
ends_in() {
	for try in $(seq 1000); do
		squeue -h -j "$job" 2>/dev/null | grep -q . || break
		sleep 0.1
	done
	at=$(grep "^{" "slurm-$job.out" | jq -e 'select(.outcome == "stopped") | .step')
	timeout 600 sh -c "$(sed -n "s/^srun/& -N $node_count --ntasks-per-node=4/
		s/=100000000/=$((at + 10))/; s/CHECKPOINT/$1 --resume/p" script)" >out 2>err
	tail -n 1 out | jq -e ".step == $at + 10"
}

test_ok "the batch script in pd-machines(7): scancel ends it in a checkpoint; another goes on from it" '
	begin_job cancelled
	scancel "$job"
	ends_in cancelled
'
# Slurm looks twice a minute for jobs whose time is nearly over.
test_ok "so does its --signal, two minutes before its time is over" '
	begin_job signalled
	scontrol update JobId="$job" TimeLimit=2
	ends_in signalled
	scontrol show job "$job" | grep " ExitCode=138:0"	# SIGUSR1 ended pd-run.
'
test_done
