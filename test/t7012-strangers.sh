#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A stranger on a third host connects to whatever the two hosts of a run listen at, from before the start on,
# thousands of times: silent, with half a word, wrong words, words that others have said, UCX's magic number,
# garbage (test/unit/stranger).  The run trains the weights of one host, the stranger is told nothing, and
# once all have come nobody listens.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun
stranger=$PD_BUILD/test/unit/stranger
[ -x "$stranger" ] || test_skip_all "test/unit/stranger is not built (make check builds it)"

on_hosts --limit=600 3

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 2 1 >flat
jq ".topology.levels = [{count: 2, bandwidth_bytes_per_s: 1e9, latency_ns: 0},
			{count: 2, bandwidth_bytes_per_s: 1e8, latency_ns: 0}]" flat >plan
pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here plan >out.here

# Four ranks: each host's two share its memory, and are connected with the other host's.  The last one's
# process comes a second late, and its worker gets little time: so long the first process listens, and then the
# workers.
mkdir late
cp "$PD_BUILD/bin/pd-run" late
cat >late/pd-worker <<END
#!/bin/sh
for turn in 1 2 3 4 5 6 7 8; do
	sleep 0.03
	kill -STOP \$\$
	sleep 0.2
	kill -CONT \$\$
done </dev/null >/dev/null 2>&1 3<&- 4<&- 5<&- &
exec "$PD_BUILD/bin/pd-worker" "\$@"
END
chmod +x late/pd-worker
cat >begin-rank <<'END'
[ "$OMPI_COMM_WORLD_RANK" -eq 3 ] || exec pd-run "$@"
sleep 1
exec late/pd-run "$@"
END
there() {
	timeout 300 mpirun --host h1:2,h2:2 -np 4 sh begin-rank --threads=1 --synthetic "$@" 2>err
}

# beset MOST COMMAND...: runs the command while a stranger, on the third host, connects but MOST times.
beset() {
	"$PD_ON" h3 "exec $stranger $1 ${PD_NETNS}switch ${PD_NETNS}h1 ${PD_NETNS}h2" >strange &
	pd_beset=$!
	shift
	"$@"
	kill $pd_beset
	wait $pd_beset || :
	cat strange
}

# listening HOST: prints the inodes of the sockets at which processes of pd-run listen there.
listening() {
	for process in $(ip netns pids "$PD_NETNS$1"); do
		case $(cat "/proc/$process/comm" 2>/dev/null) in
		pd-run | pd-worker) ls -l "/proc/$process/fd" ;;
		esac
	done | sed -n "s/.*socket:\[\([0-9]*\)\]/\1/p" | sort -u >sockets
	ip netns exec "$PD_NETNS$1" cat /proc/net/tcp /proc/net/tcp6 |
		awk '$4 == "0A" { print $10 }' | sort >listen
	comm -12 sockets listen
}

test_ok "weights as on one host, whatever comes from a third" '
	beset 20000 there --minibatches=20 --checkpoint=there plan >out
	same_weights here there
	[ "$(cat err)" = "" ]
'
# How many words it hears, and says again while somebody still listens, is a matter of luck: test/unit/door has
# that without any.
test_ok "the stranger came to several ports, and was told nothing" '
	jq -e ".ports >= 2 and .connections > 0 and .answered == 0" strange || { cat strange; false; }
'
test_ok "so it is in a flood: start upon start" '
	for start in 1 2; do
		beset 20000 there --minibatches=20 --checkpoint=flood$start plan >out
		same_weights here flood$start
		jq -e ".answered == 0" strange || { cat strange; false; }
	done
'
test_ok "while a run trains nobody listens" '
	begin out mpirun --host h1:2,h2:2 -np 4 pd-run --threads=1 --synthetic --minibatches=100000000 \
		--report-every=1 plan
	[ -z "$(listening h1)$(listening h2)" ] && [ -s sockets ]
	kill -USR1 $(of mpirun)
	ended 60 ""
'
test_ok "by UCX, which has to be asked for, the weights are the same" '
	there --transport=ucx --minibatches=20 --checkpoint=ucx plan >out || { cat err; false; }
	same_weights here ucx
'
# A second network, between the two hosts alone: IPv6, where the kernel has that.
ip link add e1 netns "${PD_NETNS}h1" type veth peer name e1 netns "${PD_NETNS}h2"
for n in 1 2; do
	ip -n "${PD_NETNS}h$n" addr add "fd98::$n/64" dev e1 nodad 2>/dev/null ||
		ip -n "${PD_NETNS}h$n" addr add "10.98.0.$n/24" dev e1
	ip -n "${PD_NETNS}h$n" link set e1 up
done
# carried INTERFACE: prints the bytes that the first host has received by it.
carried() {
	ip netns exec "${PD_NETNS}h1" sed -n "s/^ *$1: *\([0-9]*\) .*/\1/p" /proc/net/dev
}
test_ok "--network has bytes go by the interface that it names" '
	before=$(carried e1)
	there --network=e1 --minibatches=20 --checkpoint=other plan >out
	same_weights here other
	[ $(($(carried e1) - before)) -gt 10000 ]
	status 2 there --network=e9 --minibatches=20 plan
	said "--network: expected an interface of this host that is up and has an address, as ip(8) shows"
'
test_ok "by TCP within one host, too" '
	pd-run --threads=1 --transport=tcp --synthetic --minibatches=20 --checkpoint=tcp plan >out
	same_weights here tcp
'
test_done
