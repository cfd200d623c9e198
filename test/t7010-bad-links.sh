#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Links lose packets or take long (test/unit/relay, between tun devices), from the beginning or from some
# time on.  A run carries on, with the bits of one host's.  What is lost is named within seconds there, too.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun
relay=$PD_BUILD/test/unit/relay
[ -x "$relay" ] || test_skip_all "test/unit/relay is not built (make check builds it)"

# bad OPTION... 2 COMMAND...: runs the command on the first of two hosts with such a link between them.
bad() {
	sh "$PD_SOURCE/contrib/hosts.sh" --relay="$relay" --limit=600 "$@" 2>err
}
bad 2 true || test_skip_all "$(sed -n 's/^hosts.sh: //p' err)"

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 1 >plan
pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here plan >out.here
run="mpirun --host h1,h2 -np 2 pd-run --threads=1 --synthetic"

# This script trains until the link is bad, and on from there, and then has the run stop.
cat >turns <<'END'
rm -f reports
reports() {
	until [ "$(grep -cs progress reports)" -ge "$1" ]; do kill -0 $run || exit 1; sleep 0.1; done
}
mpirun --host h1,h2 -np 2 pd-run --threads=1 --synthetic --minibatches=100000000 \
	--report-every=1 --checkpoint=turned plan >reports 2>err.run &
run=$!
reports 1
kill -USR1 "$PD_RELAY"
sleep 0.5
reports $(($(grep -c progress reports) + 4))
kill -USR1 $run
wait $run || :  # it ends as by that signal
END

# named OPTION...: checks that kill -9 of the second rank, with such a link, is named within 10 s.
cat >kills <<'END'
timeout 300 mpirun --host h1,h2 -np 2 pd-run --threads=1 --synthetic --minibatches=100000000 \
	--report-every=1 plan >reports 2>err.run &
run=$!
until grep -qs progress reports; do kill -0 $run || exit 1; sleep 0.1; done
kill -USR1 "$PD_RELAY"
since=$(date +%s)
for process in $(ip netns pids "${PD_NETNS}h2"); do
	[ "$(cat "/proc/$process/comm" 2>/dev/null)" != pd-worker ] || kill -9 "$process"
done
wait $run
echo $(($(date +%s) - since))
END
named() {
	rm -f reports
	bad "$@" 2 sh kills >seconds
	cat err.run seconds
	grep -q "^pd-run: rank 1 (stage 1 of 2, host h2) was killed by signal 9 (Killed)" err.run
	[ "$(cat seconds)" -le "$(within 10)" ]
}

test_ok "a link that loses 1 % of packets: weights as on one host" '
	bad --loss=1 2 sh -c "$run --minibatches=20 --checkpoint=lossy plan && cat /proc/net/snmp" >out
	same_weights here lossy
	# Segments were sent again.
	[ "$(awk "/^Tcp: [0-9]/ { print \$13 }" out)" -gt 0 ]
'
test_ok "200 ms each way: weights as on one host" '
	bad --delay=200 2 $run --minibatches=20 --checkpoint=far plan >out
	same_weights here far
	# Each of two epochs goes there and back.
	tail -n 1 out | jq -e ".elapsed_ns > 800000000"
'
test_ok "one that begins to lose packets and to take 200 ms while a run trains: likewise" '
	rm -f reports
	bad --loss=1 --delay=200 --later 2 sh turns
	tail -n 1 reports | jq -e ".outcome == \"stopped\"" || { cat err.run; false; }
	last=$(ls -d turned/step-* | sed -n "\$s/.*step-0*//p")
	pd-run --threads=1 --synthetic --minibatches="$last" --checkpoint=straight plan >out
	same_weights straight turned
'
test_ok "a rank that is killed behind a link that loses packets is named" '
	named --loss=1
'
test_ok "so is one that is 200 ms away since then" '
	named --delay=200 --later
'

# As pd-machines(7) says, mpirun has to watch its own connections to end where a host is gone for good.
cat >cut <<'END'
timeout 200 mpirun --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 2 \
	--mca oob_tcp_keepalive_probes 2 --host h1,h2 -np 2 \
	pd-run --threads=1 --synthetic --minibatches=100000000 --report-every=1 plan >reports 2>err.run &
run=$!
until grep -qs progress reports; do kill -0 $run || exit 1; sleep 0.1; done
ip -n "${PD_NETNS}h2" link set eth0 down
wait $run
echo $? >ended
END
test_ok "a link that is down for good: pd-run or mpirun names the host, and mpirun ends" '
	rm -f reports ended
	sh "$PD_SOURCE/contrib/hosts.sh" --limit=300 2 sh cut || :
	cat err.run ended
	grep -E "^pd-run: rank 1 \(stage 1 of 2, host h2\) has not been heard of for [0-9]* s|h2" err.run
	[ "$(cat ended)" -ne 124 ] && [ "$(cat ended)" -ne 0 ]
'
test_done
