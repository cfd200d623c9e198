#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows whether the tests notice errors.  It breaks one line of a copy of the tree at a time, builds the
# copy, and runs the tests that should fail until one does.
#
#     sh contrib/mutate.sh                   makes all breakages below
#     sh contrib/mutate.sh checksum order    makes those whose names have one of these words
#
# It prints a line for each breakage: "caught", by which test and after how long, or "NOT CAUGHT".  It fails
# if one is not caught, or no longer fits its file.  MUTATE_BUILD names the folder of copy and build
# (build-mutate).  MUTATE_TESTS names the tests to run instead; "all" stands for all of make check.
#
# A breakage has four lines: its name, its file, what sed does to the file, and its tests.  Scripts and
# conformity run with PD_TEST_QUICK=yes, as in the sanitized build, so only what CI runs twice is tried.
set -u

source=$(cd "$(dirname "$0")/.." && pwd)
build=${MUTATE_BUILD:-$source/build-mutate}
export PD_TEST_QUICK=yes OMP_WAIT_POLICY=passive

die() {
	echo "mutate.sh: $*" >&2
	exit 3
}

breakages() {
	cat <<'END'
number: a relu makes 0 of a NaN
lib/run/device/cpu/cpu.h
s/return !(x <= 0);/return x > 0;/
test/conform/nonfinite

number: max pooling leaves a NaN to oneDNN
lib/run/device/cpu/maxpool.c
s/return found;/return false;/
test/conform/nonfinite

order: an evaluation loads an inbox before what it holds is sent
lib/schedule/cursor.c
s/(evaluate ? 3 : 1)/1/
test/t4017-losses.sh

order: an eager start-up admits no more than another
lib/schedule/tick.c
s/schedule->startup\[s\] : schedule->warmup\[s\]/schedule->warmup[s] : schedule->warmup[s]/
test/unit/schedule-figures test/t3001-schedule.sh

order: interleaved stages begin one forward earlier
lib/schedule/pattern_interleaved.c
s/(up - warmup_of(schedule, s))/(up - 1 - warmup_of(schedule, s))/
test/unit/schedule-figures test/t4003-pairs.sh

order: the checker takes a group for done with a backward missing
lib/schedule/check_rank.c
s/backwards_of(part, u, bucket) < size)/backwards_of(part, u, bucket) < size - 1)/
test/unit/check test/unit/edits test/t3001-schedule.sh

version: the newest is overwritten while its forwards are still to come
lib/engine/worker/weights.c
s/from->number >= keep/from->number > keep/
test/unit/weights test/t4001-weights.sh

version: one that is to be kept is given away
lib/engine/worker/weights.c
s/v->number < weights->keep)/v->number <= weights->keep)/
test/unit/weights test/t4001-weights.sh

sum: replicas are added in another order
lib/run/device/cpu/sum.c
s/add(piece, src\[k\] + at, floats)/add(piece, src[n - k] + at, floats)/
test/unit/reduce test/t4001-weights.sh

sum: one is issued while parts of an agree are still to come on its stream
lib/engine/worker/update.c
s/worker_global_norm_pending(w) ||$/false ||/
test/unit/agree

sparse: what stays is not corrected for momentum
lib/run/device/cpu/chunks.c
s/hg\[i\] = keep \* g\[i\]/hg[i] = g[i]/
test/conform/chunks test/t4031-sparse.sh

sparse: one replica sends another set of chunks
lib/engine/reduce/sparse.c
s/what.step = step;/what.step = step, what.sent -= s->config.me == 1 \&\& what.sent > 1;/
test/t4031-sparse.sh

sparse: the norm of a chunk that travels is counted once for each replica
lib/run/device/cpu/chunks.c
s/sum_absolutes(g, count) \/ w->members/sum_absolutes(g, count)/
test/conform/chunks test/t4031-sparse.sh

sum: what other groups of replicas made is added last
lib/sums/dense.c
s/int member = n - !is_first(d);/int member = is_first(d) ? n : n == d->size ? -1 : n;/
test/unit/reduce test/t4001-weights.sh

sum: the gradients of a minibatch are not begun anew
lib/engine/worker/update.c
s/^\tsum->backwards = 0;//
test/t4001-weights.sh

sum: the first gradient of a group is added to that of the group before
lib/engine/worker/update.c
s/return before == 0 ? 0/return before < 0 ? 0/
test/t4001-weights.sh test/t4003-pairs.sh

sum: a ring keeps what comes where it does not look for it
lib/sums/ring.c
s/tag, staged(ring, part), in.floats/tag, staged(ring, (struct part){ 0, part.cut }), in.floats/
test/unit/reducers test/t4030-buckets.sh

sum: a butterfly's members give away sums of two in 16 bits
lib/sums/doubling.c
s/return k == 0 \&\& m + d->p >= d->n;/return k == 0;/
test/unit/reducers

script: a coarse ring sends twice what its steps do
lib/sums/ring.c
s/->part = halves \/ 2 \/ ring->n;/->part = halves \/ ring->n;/
test/unit/scripts

script: whom a member only gets something from is not met
lib/sums/reducer.c
s/met\[script.transfers\[i\].peer\] = true;/met[script.transfers[i].peer] |= script.transfers[i].send;/
test/unit/scripts

script: a chain has room for one of the two pieces that are there at a time
lib/sums/hierarchical.c
s/(pieces > 1 ? 2 : 1)/1/
test/unit/scripts

sum: every bucket is the first
lib/engine/worker/update.c
s/(float \*)sums->gradients + bucket->begin/(float *)sums->gradients/
test/t4030-buckets.sh

update: momentum forgets the weight decay
lib/engine/device/update.h
s/\*v = f->momentum \* \*v + (g + f->decay \* w);/*v = f->momentum * *v + g;/
test/conform/stream test/t4001-weights.sh

update: Adam's epsilon is added before the correction
lib/engine/device/update.h
s|(sqrtf(\*s) / f->root + f->eps)|((sqrtf(*s) + f->eps) / f->root)|
test/conform/stream test/t4001-weights.sh

layer: running statistics move the other way
lib/run/device/cpu/batchnorm2d.c
s/(1 - momentum) \* running_mean\[c\] + momentum \* mean\[c\]/momentum * running_mean[c] + (1 - momentum) * mean[c]/
test/conform/layers

layer: causal attention sees a position ahead
lib/run/device/cpu/attention_tiles.c
s/a->causal ? pd_min(i + 1, j->length)/a->causal ? pd_min(i + 2, j->length)/
test/conform/layers

layer: the gate that forgets is forgotten on the way back
lib/run/device/cpu/lstm_gates.c
s/cells\[j\] = dc \* forget\[j\]/cells[j] = dc/
test/conform/layers

hosts: any word will do
lib/run/socket/door.c
s/return difference == 0/return difference < 256/
test/unit/door test/unit/meeting

memory: an inbox more is predicted than there is
lib/schedule/memory.c
s/\.inboxes = buffer_counts->inboxes/.inboxes = buffer_counts->inboxes + 1/
test/unit/memory test/t4005-memory.sh

memory: the gradient of an activation is not counted while it is alive
lib/memory/memory.c
s/^\t*held = pd_plus(held, input->activation_bytes);//
test/unit/memory test/t4005-memory.sh

checksum: a damaged document is taken for whole
lib/checkpoint/info.c
s/if (strcmp(pd_checksum_text(found, is), was) == 0)/if (strcmp(pd_checksum_text(found, is), was) != 1)/
test/unit/checkpoint test/unit/damage test/t7005-checkpoints.sh

lock: two runs may have one directory
lib/checkpoint/lock.c
s/\.l_type = F_WRLCK/.l_type = F_RDLCK/
test/unit/lock test/t7005-checkpoints.sh

bound: the all-reduce of stages is waited for, though their steps are put off
lib/planner/bound/bound.c
s/(input || !b->agree || b->request->weights != PD_WEIGHTS_2BW)/(input || true)/
test/unit/bound test/t2001-plan.sh

signal: a second one at once is a second wish
lib/run/supervisor/signals.c
s/if (again \&\& now - s->wished_ns < SAME_WISH_NS)/if (again \&\& now < s->wished_ns)/
test/t7007-signals.sh

signal: what was ignored is not
lib/run/supervisor/signals.c
s/ \&\& action.sa_handler != SIG_IGN//
test/t7002-kill.sh test/t7007-signals.sh

worker: it outlives pd-run
lib/run/launch/process.c
s/prctl(PR_SET_PDEATHSIG, SIGKILL)/prctl(PR_SET_PDEATHSIG, 0)/
test/t7002-kill.sh

worker: a forward does not wait for what it receives
lib/engine/worker/pass.c
s/worker_behind(w, w->compute, &microbatch->received\[i\]) < 0/!w/
test/t4001-weights.sh

worker: a forward does not wait for its samples, where memory is separate
lib/engine/worker/pass.c
s/worker_after(w, w->compute, &microbatch->loaded) < 0/!w/
test/unit/waits

worker: gradients of shared parameters leave before they are complete
lib/engine/worker/tied_weights.c
s/one->bytes, ready,/one->bytes, ready ? NULL : ready,/
test/unit/agree

worker: a backward does not wait for the gradients it receives
lib/engine/worker/pass.c
s/worker_after(w, w->compute, &in->transfers\[i\]) < 0/!w/
test/t4001-weights.sh

worker: an update has the event of the one before
lib/engine/worker/update.c
s/c->step_turn = 1 - c->step_turn;//
test/unit/waits

worker: gradients are added beside what is kept to be handed over
lib/engine/worker/update.c
s/pd_submit_sum(w->compute, gradients, parts/pd_submit_sum(w->behind, gradients, parts/
test/t4006-updates.sh

worker: a forward keeps its loss scale where another group has the sum
lib/engine/worker/pass.c
s/ || sum->group != worker_group_of(w, c, op)//
test/t4006-updates.sh

graph: a forward and the backward of other samples are one
lib/run/device/cuda/graph_cache.c
s/ || f->first_sample != b->first_sample//
test/unit/cuda-graph-cache

worker: an update does not wait for the sum
lib/engine/worker/update.c
s/before && worker_after(w, w->compute, before) < 0/before \&\& !w/
test/t4001-weights.sh

resume: a resumed run begins anew
lib/run/job/resume.c
s/job->resume_step = info->step;/job->resume_step = 0;/
test/t7001-resume.sh

worker: no heartbeat for a minute
lib/run/launch/heartbeat.c
s/until\.tv_sec++/until.tv_sec += 60/
test/unit/heartbeat test/t7007-signals.sh

data: the first sample never changes its place
lib/engine/data/order.c
s/i = samples - 1; i > 0; i--/i = samples - 1; i > 1; i--/
test/unit/dataset test/unit/loader

document: a key twice is taken
lib/base/json.c
s/json_loadb(text, bytes, JSON_REJECT_DUPLICATES/json_loadb(text, bytes, 0/
test/unit/json test/t1001-malformed.sh

what-if: a backward is not made faster
lib/predict/whatif.c
s/^\t*speed_up(&layer->backward_ns, factor);//
test/t5002-what-if.sh

pictures: labels are white, whatever is behind them
lib/base/svg.c
s/pd_contrast(PD_WHITE, ground) >= pd_contrast(PD_BLACK, ground)/pd_contrast(PD_WHITE, ground) > 0/
test/unit/svg

pictures: evaluations are drawn among training
lib/trace/window.h
s/record->op.evaluate == window->evaluates && //
test/unit/window

pictures: a steady state ends in the middle of what repeats
lib/trace/window.c
s/\.end_ns = end > 0 ? end$/.end_ns = end > 0 ? begin + length/
test/unit/window

pictures: an operation without room for its number lacks its stage
lib/trace/out_text.c
s/^\t\twhich++;/\t\twhich = SHORTEST;/
test/t5002-what-if.sh

update: Nesterov's move looks two momenta ahead
lib/engine/device/update.h
s/(g + f->momentum \* \*v)/(g + f->momentum * f->momentum * *v)/
test/conform/stream

update: Lion moves by what it keeps
lib/engine/device/update.h
s/float way = f->beta1 \* \*v + f->rest1 \* g;/float way = f->beta2 * *v + f->rest2 * g;/
test/conform/stream

update: decoupled weight decay does not follow the rate
lib/engine/device/update.h
s/(1 - u->rate \* u->weight_decay)/(1 - u->weight_decay)/
test/conform/stream test/t4006-updates.sh

order: a gradient does not wait for the stage behind
lib/order/walk.c
s/(s == walk->order->stages - 1 ||/(s >= 0 ||/
test/unit/order

order: a pass is there twice
lib/order/certify.c
s/op->microbatch < \*due)/op->microbatch < *due - 1)/
test/unit/order

order: a rank of V-Half keeps one chunk more
lib/order/squeeze.c
s/kept(g, position, to) >= g->most)/kept(g, position, to) > g->most)/
test/unit/order-lists test/unit/published

order: W's are put where their I's are not over
lib/order/squeeze.c
s/return \*slot_of(g, PD_ORDER_I, s, i);/return *slot_of(g, PD_ORDER_F, s, i);/
test/unit/order-lists test/unit/schedule-orders

order: a round shorter than a path is taken
lib/schedule/pattern_interleaved.c
s/if (g < p)/if (g < 1)/
test/unit/schedule-orders test/t2005-partitions.sh

order: a deferred step comes behind the next W
lib/schedule/pattern_block.c
s/\[s\] + replica) - 3;/[s] + replica) + 3;/
test/t4026-v.sh

layer: keys behind the query fall into the buckets of those before it
lib/model/relative.h
s/if (bucket >= r->half)/if (bucket > r->half)/
test/conform/layers

spread: what each layer has of its own adds up as what all have in common
lib/profile/spread.c
s/below += ns \* (1 - own.low) \* ns \* (1 - own.low);/below += sum * ns * (1 - own.low) * (1 - own.low);/
test/unit/profile test/t2009-spread.sh

kinds: a device has the memory of the first kind
lib/topology/kinds.c
s/topology->kind\[pd_topology_kind_of(topology, rank)\].memory_bytes/topology->kind[0].memory_bytes/
test/unit/kinds test/t2012-kinds.sh

recompute: a layer that is kept is computed again
lib/plan/recompute.c
s/if (pd_plan_reruns(plan, s, l))/if (l >= 0)/
test/unit/plan

names: what a tensor is called besides is not looked for
lib/model/outside.c
s/also = m->ours ? NULL/also = m ? NULL/
test/unit/outside test/t7006-init.sh

transport: an address has room for the offers of those that connect
lib/run/transport/routes.c
s/if (!pd_providers\[i\]->connector)$/if (pd_providers[i])/
test/unit/transfers test/t4001-weights.sh
END
}

# copy: copies the files that git knows, as they are here, and builds them.  Unchanged files keep their
# times, so that make need not compile them again.
copy() {
	mkdir -p "$build/source" "$build/build"
	(cd "$source" && git ls-files -z | xargs -0 tar -cf - --) | tar -C "$build/source" -xf - ||
		die "the tree cannot be copied"
	cd "$build/source" || exit 3
	[ -x configure ] || autoreconf -fi >"$build/autoreconf.out" 2>&1 || die "autoreconf failed"
	cd "$build/build" || exit 3
	[ -f Makefile ] || "$build/source/configure" --with-cuda=no CFLAGS=-O1 >configure.out 2>&1 ||
		die "configure failed: $build/build/configure.out"
	compiled || die "the tree does not build: $build/build/make.out"
}

# compiled TEST...: builds the programs, and what these tests need.
compiled() {
	make -j"$(nproc)" all >make.out 2>&1 &&
		make -j"$(nproc)" $(make -s print-programs TESTS="$*") >>make.out 2>&1
}

# failing TEST...: prints the first of these tests that fails, and succeeds if one does.
failing() {
	if [ "$1" = all ]; then
		make check -j"$(nproc)" >check.out 2>&1 && return 1
		sed -n 's/^[FE][A-Z]*: \([^ ]*\).*/\1/p' check.out | head -n 1
		return 0
	fi
	for test in "$@"; do
		case $test in
		*.sh) PD_SOURCE=$build/source PD_BUILD=$build/build sh "$build/source/$test" ;;
		*/unit/*) PD_SOURCE=$build/source PD_BUILD=$build/build env -u PD_TEST_QUICK "./$test" ;;
		*) PD_SOURCE=$build/source PD_BUILD=$build/build "./$test" ;;
		esac >test.out 2>&1
		[ $? -eq 0 ] && ! grep -q '^not ok' test.out || { echo "$test"; return 0; }
	done
	return 1
}

# tried NAME FILE SED TESTS: makes a breakage, prints whether a test notices it, and restores the file.
tried() {
	name=$1 file=$build/source/$2 change=$3
	set -- $4
	[ -z "${MUTATE_TESTS-}" ] || set -- $MUTATE_TESTS
	cp -p "$file" "$build/whole"
	sed "$change" "$build/whole" >"$file"
	since=$(date +%s)
	if [ "$(diff "$build/whole" "$file" | grep -c '^[<>]')" -lt 1 ]; then
		verdict="DOES NOT FIT ${file#"$build"/source/} any more"
	elif ! compiled "$@"; then
		verdict="DOES NOT COMPILE: $(grep -m 1 -i error make.out)"
	elif by=$(failing "$@"); then
		verdict="caught by $by"
	else
		verdict="NOT CAUGHT"
	fi
	echo "$name: $verdict ($(($(date +%s) - since)) s)"
	cat "$build/whole" >"$file"     # The file is now newer than what was built from the broken one.
	case $verdict in
	caught*) caught=$((caught + 1)) ;;
	*) missed=$((missed + 1)) ;;
	esac
}

# wanted NAME WORD...: succeeds if the name has one of these words, or if there are none.
wanted() {
	case $# in 1) return 0 ;; esac
	wanted_name=$1
	shift
	for word in "$@"; do
		case $wanted_name in *"$word"*) return 0 ;; esac
	done
	return 1
}

caught=0 missed=0
copy
breakages >"$build/breakages"
while read -r name && read -r file && read -r change && read -r tests; do
	! wanted "$name" "$@" || tried "$name" "$file" "$change" "$tests" </dev/null
	read -r blank || break
done <"$build/breakages"
echo "$caught caught, $missed not"
[ "$missed" -eq 0 ]
