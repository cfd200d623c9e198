#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command on the first of N hosts, which are made on this machine and exist while the command runs.
#
#     sh contrib/hosts.sh [--rate=RATE] [--racks=K --uplink=RATE] [--relay=PROGRAM [--delay=MS]
#         [--loss=PERCENT] [--later]] [--clocks] [--limit=SECONDS] N COMMAND [ARGUMENT]...
#
# A host is a network namespace with a name of its own (UTS namespace).  Their names are h1 to hN, their
# addresses 10.99.0.1 to .N, and a switch connects them.
#
#     --rate=RATE         shapes each host's link in both directions, for example to 100mbit
#     --racks=K           deals the hosts out to K racks, the first ones to the first; each has a switch
#     --uplink=RATE       shapes the link from the switch of each rack to the others
#     --relay=PROGRAM     passes all packets through PROGRAM, test/unit/relay of a build, not switches
#     --delay=MS          has the relay deliver packets so many milliseconds later
#     --loss=PERCENT      has the relay lose so many packets
#     --later             has the relay delay and lose packets only once it gets SIGUSR1
#     --clocks            gives each host a clock of its own, 1000 s apart from the next
#     --names=N,N,...     gives the first hosts processors of these names
#     --limit=SECONDS     ends the command after so long (300)
#
# When the script ends, for whatever reason, all processes of the hosts are killed and the hosts are
# removed.  So are those that an earlier script left because it was killed.
#
# The command finds these variables in its environment:
#
#     PD_HOSTS   h1,h2,...: mpirun --host takes it, and starts a rank on each
#     PD_ON      a program that runs a command on a host: $PD_ON h2 'COMMAND'
#     PD_RELAY   the process of the relay, if there is one
#     PD_NETNS   the prefix of the names of namespaces: ip -n ${PD_NETNS}h2 link set eth0 down
#
# The script needs root, iproute2 and util-linux.  If it cannot make hosts, it exits with status 77 and a
# sentence.
set -u

rate= racks=1 uplink= relay= delay=0 loss=0 later= clocks= names= limit=300 prefix=pd-$$-
while :; do
	case ${1-} in
	--rate=?*) rate=${1#*=} ;;
	--racks=?*) racks=${1#*=} ;;
	--uplink=?*) uplink=${1#*=} ;;
	--relay=?*) relay=${1#*=} ;;
	--delay=?*) delay=${1#*=} ;;
	--loss=?*) loss=${1#*=} ;;
	--later) later=later ;;
	--clocks) clocks=yes ;;
	--names=?*) names=${1#*=} ;;
	--limit=?*) limit=${1#*=} ;;
	*) break ;;
	esac
	shift
done
case ${1-} in
"" | *[!0-9]* | 0*) echo "hosts.sh: expected [OPTION]... N COMMAND..., found '$*'" >&2; exit 2 ;;
esac
count=$1
shift

cannot() {
	echo "hosts.sh: no hosts here: $*" >&2
	exit 77
}
[ "$(id -u)" -eq 0 ] || cannot "only root makes network namespaces"
for program in ip unshare timeout; do
	command -v $program >/dev/null || cannot "$program is absent"
done

relay_pid=
# remove PREFIX: kills all processes of the hosts whose namespaces begin so, and removes these hosts.
remove() {
	for netns in $(ip netns list 2>/dev/null | sed -n "s/^\($1[a-z0-9]*\).*/\1/p"); do
		for pid in $(ip netns pids "$netns" 2>/dev/null); do
			kill -9 "$pid" 2>/dev/null
		done
		ip netns delete "$netns"
		rm -rf "/etc/netns/$netns"
	done
	rmdir /etc/netns 2>/dev/null || :
}

for old in $(ip netns list 2>/dev/null | sed -n 's/^pd-\([0-9]*\)-.*/\1/p' | sort -u); do
	kill -0 "$old" 2>/dev/null || remove "pd-$old-"
done

directory=$(mktemp -d "${TMPDIR:-/tmp}/pd-hosts.XXXXXX") || exit 3
trap 'remove $prefix; [ -z "$relay_pid" ] || kill -9 $relay_pid; rm -rf "$directory"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

switch=${prefix}switch

# shape NAMESPACE DEVICE RATE: limits what leaves there to that rate, or not at all if RATE is empty.
shape() {
	[ -z "$3" ] ||
		tc -n "$1" qdisc add dev "$2" root tbf rate "$3" burst 256kb latency 50ms
}

bridge() {
	ip -n "$switch" link add "$1" type bridge && ip -n "$switch" link set "$1" up
}

# Each rack has a switch, and a link from it to the one switch that connects all racks.
{
	ip netns add "$switch" && bridge br0 && k=0 &&
	while [ $k -lt "$racks" ]; do
		k=$((k + 1))
		bridge "br$k" &&
		ip -n "$switch" link add "up$k" type veth peer name "down$k" &&
		ip -n "$switch" link set "up$k" master "br$k" up &&
		ip -n "$switch" link set "down$k" master br0 up &&
		shape "$switch" "up$k" "$uplink" && shape "$switch" "down$k" "$uplink" || break
	done
} 2>"$directory/error" || cannot "$(cat "$directory/error")"

if [ -n "$relay" ]; then
	"$relay" "pd$$r" "$count" "$delay" "$loss" $later >"$directory/ready" 2>"$directory/error" &
	relay_pid=$!
	until [ -s "$directory/ready" ]; do
		kill -0 $relay_pid 2>/dev/null || { relay_pid= && cannot "$(cat "$directory/error")"; }
		sleep 0.05
	done
fi

# attach N NAMESPACE RACK: gives a host its interface, eth0.
attach() {
	if [ -n "$relay" ]; then
		ip link set "pd$$r$1" netns "$2" name eth0
		return
	fi
	ip link add "v$1" netns "$switch" type veth peer name eth0 netns "$2" &&
	ip -n "$switch" link set "v$1" master "br$3" up
}

hosts= n=0
while [ $n -lt "$count" ]; do
	n=$((n + 1)) netns=${prefix}h$n
	rack=$(((n - 1) * racks / count + 1))
	{
		ip netns add "$netns" &&
		attach "$n" "$netns" "$rack" &&
		ip -n "$netns" link set lo up &&
		ip -n "$netns" addr add "10.99.$((n / 256)).$((n % 256))/16" dev eth0 &&
		ip -n "$netns" link set eth0 up &&
		{ [ -n "$relay" ] || { shape "$netns" eth0 "$rate" && shape "$switch" "v$n" "$rate"; }; }
	} 2>"$directory/error" || cannot "$(cat "$directory/error")"
	mkdir -p "/etc/netns/$netns"
	: >"/etc/netns/$netns/resolv.conf"
	echo "10.99.$((n / 256)).$((n % 256)) h$n" >>"$directory/hosts"
	hosts=$hosts,h$n
done
echo "127.0.0.1 localhost" >>"$directory/hosts"
n=0
while [ $n -lt "$count" ]; do
	n=$((n + 1))
	cp "$directory/hosts" "/etc/netns/${prefix}h$n/hosts"
done

n=0
while [ -n "$names" ]; do
	n=$((n + 1)) name=${names%%,*}
	case $names in *,*) names=${names#*,} ;; *) names= ;; esac
	sed "s/^\(model name[^:]*: \).*/\1$name/" /proc/cpuinfo >"$directory/cpuinfo-h$n"
done

# mpirun calls this program as it would call ssh: [OPTION]... HOST COMMAND.
cat >"$directory/on" <<END
#!/bin/sh
while :; do case \$1 in -l | -p | -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=\$1
shift
clock=
[ -z "$clocks" ] || clock="--time --fork --kill-child --monotonic \$((1000 * \${host#h}))"
exec ip netns exec "$prefix\$host" unshare --uts \$clock \\
	sh -c 'hostname "\$0"; [ ! -e "\$2" ] || mount --bind "\$2" /proc/cpuinfo; exec sh -c "\$1"' \
	"\$host" "\$*" "$directory/cpuinfo-\$host"
END
chmod +x "$directory/on"

PD_HOSTS=${hosts#,} PD_ON=$directory/on PD_NETNS=$prefix PD_RELAY=$relay_pid
OMPI_MCA_plm_rsh_agent=$directory/on
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PD_HOSTS PD_ON PD_NETNS PD_RELAY OMPI_MCA_plm_rsh_agent OMPI_ALLOW_RUN_AS_ROOT \
	OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

# Each word of the command is quoted for the shell of the host.
line=
for word; do
	line="$line '$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'"
done
timeout --foreground -k 5 "$limit" "$directory/on" h1 "$line"
