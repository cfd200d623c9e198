# Tests speak TAP.  test/unit has one file per noun of lib; test/conform compares kernels with plain C;
# test/tNNNN-*.sh do what a person could type, numbered from basic to complex (test/README).
TAP_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/contrib/build-aux/tap-driver.sh
LOG_DRIVER = $(TAP_DRIVER)
SH_LOG_DRIVER = $(TAP_DRIVER)
TEST_EXTENSIONS = .sh
SH_LOG_COMPILER = $(SHELL)
# Threads that wait sleep, as in pd-run, so programs beside them have the processors.
AM_TESTS_ENVIRONMENT = PD_SOURCE='$(abs_top_srcdir)'; PD_BUILD='$(abs_top_builddir)'; \
	OMP_WAIT_POLICY=passive; export PD_SOURCE PD_BUILD OMP_WAIT_POLICY;

# A program of one file needs no line of its own here: its name in a list is enough.  libtest.a has what
# several programs share.  Programs load no library that they do not call.
check_LIBRARIES = test/libtest.a
test_libtest_a_SOURCES = test/tap.c test/tap.h \
	test/conform/chain.c test/conform/chain.h test/conform/conforms.c test/conform/conforms.h \
	test/conform/kind_cases.c test/conform/kind_cases.h test/conform/models.c test/conform/ref.c test/conform/ref.h \
	test/conform/ref_attention.c test/conform/ref_image.c test/conform/ref_kind.h \
	test/conform/ref_loss.c test/conform/ref_lstm.c test/conform/ref_rows.c \
	test/unit/dense_open.h test/unit/document.h test/unit/document_rows.h test/unit/made_lists.h test/unit/made_up.h test/unit/onnx_text.c test/unit/onnx_text.h test/unit/ranks.c \
	test/unit/ranks.h test/unit/read_plan.h test/unit/rendezvous.c test/unit/rendezvous.h \
	test/unit/replayed.h test/unit/scratch.c test/unit/scratch.h test/unit/small_checkpoint.c \
	test/unit/ucx_leaks.h \
	test/unit/small_checkpoint.h test/unit/small_model.h test/unit/small_profile.h \
	test/unit/table.c test/unit/table.h test/unit/virtual_run.c test/unit/virtual_run.h \
	test/unit/worked_orders.h
test/unit/onnx_text.$(OBJEXT) test/unit/onnx.$(OBJEXT): lib/doors/onnx/proto/onnx.pb-c.h
LDADD = test/libtest.a $(AS_NEEDED) $(PD_DEVICE_LIBS)

UNITS = test/unit/activity test/unit/agree test/unit/allreduce test/unit/bound test/unit/channel test/unit/check test/unit/checkpoint \
	test/unit/checksum test/unit/compact test/unit/costs test/unit/cuda-arith test/unit/cuda-choice \
	test/unit/cuda-graph-cache test/unit/damage test/unit/dataset test/unit/door test/unit/drift test/unit/edits test/unit/estimate test/unit/exchange \
	test/unit/failure test/unit/figures test/unit/file-kind test/unit/half test/unit/heartbeat test/unit/join test/unit/kinds \
	test/unit/json test/unit/launcher test/unit/levels test/unit/link test/unit/loader \
	test/unit/lock test/unit/machine test/unit/meeting test/unit/megatron test/unit/memory test/unit/model test/unit/monotone test/unit/nccl \
	test/unit/names test/unit/network test/unit/npy test/unit/npz \
	test/unit/number test/unit/onnx test/unit/onnx-network test/unit/onnx-views test/unit/optimizer test/unit/option-needs test/unit/order test/unit/order-exact test/unit/order-lists test/unit/order-search test/unit/outside test/unit/pace test/unit/placement test/unit/plan test/unit/planner \
	test/unit/price test/unit/product test/unit/profile test/unit/published test/unit/recurrence test/unit/reduce test/unit/reducers test/unit/replay test/unit/rows \
	test/unit/safetensors test/unit/schedule test/unit/schedule-figures test/unit/schedule-orders test/unit/scripts test/unit/search test/unit/sim test/unit/sparse test/unit/states test/unit/svg \
	test/unit/tally test/unit/tcp test/unit/tile test/unit/timeline test/unit/tokens test/unit/topology test/unit/trace \
	test/unit/trace-memory test/unit/transfers test/unit/transfers-end test/unit/updates test/unit/views test/unit/waits test/unit/walk test/unit/weights \
	test/unit/window test/unit/wiring
test_unit_order_exact_SOURCES = test/unit/order-exact.c test/unit/exact_order.c test/unit/exact_order.h
test_unit_reducers_SOURCES = test/unit/reducers.c test/unit/shuffled.c test/unit/shuffled.h
test_unit_cuda_graph_cache_SOURCES = test/unit/cuda-graph-cache.c lib/run/device/cuda/graph_cache.c \
	lib/run/device/cuda/graph_cache.h
test_unit_join_SOURCES = test/unit/join.c lib/run/device/cuda/graph_cache.c lib/run/device/cuda/graph_cache.h
# test/unit/nccl runs the transport over NCCL with a double of NCCL.
test_unit_nccl_SOURCES = test/unit/nccl.c test/unit/nccl_ranks.c test/unit/nccl_ranks.h \
	test/unit/nccl_sums.c test/double/nccl.c test/double/nccl.h $(NCCL_TRANSPORT)
test_unit_nccl_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/double

# These programs compare kernels with plain C, on every device that this machine has.
CONFORM = test/conform/devices test/conform/half test/conform/iteration test/conform/layers \
	test/conform/chunks test/conform/frozen test/conform/nonfinite test/conform/partition test/conform/stream test/conform/transfers test/conform/widened
test_conform_layers_SOURCES = test/conform/layers.c test/conform/layers.h test/conform/layers_attention.c \
	test/conform/layers_lstm.c test/conform/layers_sequences.c
test_conform_stream_SOURCES = test/conform/stream.c test/conform/stream.h \
	test/conform/stream_parameters.c test/conform/stream_sums.c test/conform/stream_updates.c
if HAVE_CUDA
CONFORM += test/conform/kernels
else
EXTRA_DIST += test/conform/kernels.c
endif

# Scripts call these programs, so a build that runs only some tests needs all of them (print-programs).
SCRIPT_HELPERS = test/conform/serial test/conform/same-tensors test/unit/document-keys test/unit/joining-worker test/unit/malform \
	test/unit/read-document test/unit/relay test/unit/seeds test/unit/stranger test/unit/ucx-life
test_conform_serial_SOURCES = test/conform/serial.c test/conform/serial.h \
	test/conform/serial_rule.c test/conform/serial_sparse.c test/conform/serial_tensor.c test/conform/serial_update.c
# This pd-worker hands works over together to any device (train-lib.sh).
test_unit_joining_worker_SOURCES = bin/pd-worker.c test/double/joins.c
test_unit_joining_worker_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pd_device_find
test_unit_seeds_SOURCES = test/unit/seeds.c contrib/fuzz/fuzz.c
# test/unit/cudnn asks cuDNN what it can do, where there is no GPU.
if HAVE_CUDA
SCRIPT_HELPERS += test/unit/cudnn
test_unit_cudnn_SOURCES = test/unit/cudnn.c test/double/described.c test/double/described.h
test_unit_cudnn_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/double
test_unit_cudnn_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=cudnnBackendCreateDescriptor,--wrap=cudnnBackendSetAttribute
endif

SCRIPT_TESTS = test/t0001-streams.sh test/t0002-completion.sh test/t0003-memory.sh test/t0004-mistakes.sh \
	test/t1001-malformed.sh test/t1002-seeds.sh test/t1003-pd-model.sh test/t1004-config.sh test/t1005-import.sh test/t1006-onnx.sh test/t1007-families.sh \
	test/t2001-plan.sh test/t2002-released.sh test/t2003-bad-input.sh test/t2004-batch.sh test/t2005-partitions.sh test/t2006-foreign.sh test/t2007-memory-model.sh test/t2008-estimate.sh test/t2009-spread.sh test/t2010-groups.sh test/t2012-kinds.sh test/t2017-orders.sh test/t2018-answer.sh test/t2019-top.sh test/t2020-machines.sh test/t2022-like.sh test/t2023-systems.sh test/t2024-idle.sh test/t2025-interrupt.sh test/t2026-questions.sh test/t2013-updates.sh \
	test/t2014-schedules.sh test/t2015-explain.sh \
	test/t3001-schedule.sh \
	test/t3002-torch-csv.sh \
	test/t4001-weights.sh test/t4002-programs.sh test/t4003-pairs.sh test/t4004-split.sh \
	test/t4005-memory.sh test/t4006-updates.sh test/t4007-tied.sh test/t4008-recompute.sh \
	test/t4009-mixed.sh test/t4010-schedule-files.sh test/t4011-kernels.sh \
	test/t4012-minibatch.sh test/t4013-torch.sh test/t4014-order.sh test/t4015-pipemare.sh \
	test/t4016-reports.sh test/t4017-losses.sh test/t4018-beforehand.sh test/t4019-large.sh \
	test/t4020-npy.sh test/t4021-amx.sh test/t4022-lstm.sh test/t4023-gpt.sh \
	test/t4024-text.sh test/t4025-images.sh test/t4026-v.sh test/t4030-buckets.sh test/t4031-sparse.sh test/t4032-gradient-dtype.sh \
	test/t4033-sums.sh test/t4034-sparse-plan.sh test/t4035-orders.sh test/t4037-skips.sh test/t4038-frozen.sh \
	test/t5001-replay.sh test/t5002-what-if.sh test/t5003-links.sh test/t5004-wide.sh \
	test/t5005-replicas.sh test/t5006-kineto.sh test/t5007-lost.sh \
	test/t6001-ucx-life.sh test/t6002-mpirun.sh test/t6003-slurm.sh test/t6004-topo.sh test/t6005-kinds.sh \
	test/t7001-resume.sh test/t7002-kill.sh test/t7003-evaluate.sh test/t7004-names.sh \
	test/t7005-checkpoints.sh test/t7006-init.sh test/t7007-signals.sh test/t7008-hosts.sh test/t7009-own-folders.sh \
	test/t7010-bad-links.sh test/t7011-addresses.sh test/t7012-strangers.sh \
	test/t7013-divergence.sh test/t7014-export.sh test/t7015-living.sh test/t7016-recipe.sh \
	test/t8001-manual.sh test/t8002-layers.sh test/t8003-names.sh test/t8004-gpu-first.sh test/t8005-gpu-bundle.sh \
	test/t9001-gpu.sh test/t9002-gpu.sh test/t9003-sanitizer.sh test/t9004-nccl.sh \
	test/t9005-cudnn.sh test/t9006-layouts.sh test/t9007-visible.sh test/t9008-emulated.sh

check_PROGRAMS += $(UNITS) $(CONFORM) $(SCRIPT_HELPERS)
TESTS += $(UNITS) $(CONFORM) $(SCRIPT_TESTS)
EXTRA_DIST += $(SCRIPT_TESTS) test/README test/hosts-lib.sh test/page-keys.awk test/systems-lib.sh test/test-lib.sh test/train-lib.sh test/torch-judge.py \
	test/data/gpu-a100.json test/data/gpu-h100.json test/data/grouped-convolutions.json \
	test/data/kineto-bare.json.gz test/data/kineto-compiled.json.gz \
	test/data/kineto-labels.json.gz test/data/kineto-modules.json.gz test/data/judged-model.json test/data/odd-convolutions.json test/data/small-model.json \
	test/data/transposed-convolutions.json \
	test/data/small-config.json test/data/small-plan.json test/data/tied-model.json \
	test/data/tutorial/data.npz test/data/tutorial/net.onnx test/data/tutorial/tokens/train.bin \
	test/data/tutorial/tokens/val.bin \
	test/data/small-profile.json test/data/small-schedule.jsonl test/data/small-topology.json test/data/systems.jsonl \
	test/data/small-trace.jsonl test/data/import \
	test/data/fuzz/checkpoint/adam test/data/fuzz/checkpoint/initial \
	test/data/fuzz/checkpoint/one test/data/fuzz/checkpoint/two \
	test/data/fuzz/config/bad-padding.json test/data/fuzz/config/bad-scaled.json \
	test/data/fuzz/config/bad-sizes.json test/data/fuzz/config/bert.json \
	test/data/fuzz/config/gpt2.json test/data/fuzz/config/llama3.json \
	test/data/fuzz/config/mistral.json test/data/fuzz/config/vit.json \
	test/data/fuzz/onnx/images.onnx test/data/fuzz/onnx/rotary.onnx test/data/fuzz/onnx/sequence.onnx \
	test/data/fuzz/kineto/bad-empty.json test/data/fuzz/kineto/gpu.json test/data/fuzz/kineto/modules.json test/data/fuzz/kineto/pipeline.json \
	test/data/fuzz/cifar/one test/data/fuzz/idx/four test/data/fuzz/safetensors/small \
	test/data/fuzz/index/bad-place.json test/data/fuzz/index/two.json \
	test/data/fuzz/model/names.json test/data/fuzz/model/source.json test/data/fuzz/npy/plain test/data/fuzz/npy/wide test/data/fuzz/npz/deflated test/data/fuzz/npz/stored test/data/fuzz/tokens/bare \
	test/data/fuzz/tokens/header test/data/fuzz/topology-string/levels \
	test/double/pmix.c test/double/readdir.c test/emulated/amx.c test/emulated/cublaslt.cc test/emulated/cudnn.cc \
	test/emulated/run/device/cuda/mma.cuh \
	test/emulated/emulated.h test/emulated/graph.h test/emulated/grid.cc test/emulated/memory.cc \
	test/emulated/mistakes.cu test/emulated/number.h test/emulated/nvcc \
	test/emulated/runtime.cc \
	contrib/emulate-cuda.sh contrib/gpu-bundle.sh contrib/gpu-first.sh contrib/hosts.sh \
	contrib/ptxas.sh contrib/run-here.sh

# The lists below say how contrib/check.sh runs the tests.
#
# These tests have networks of hundreds of megabytes, and run in the plain build only.
LARGE_TESTS = test/conform/devices test/t4019-large.sh
# These tests measure links, which other tests beside them would change, so they run one after the other.
ALONE_TESTS = test/t6004-topo.sh test/t6005-kinds.sh
# These tests take longest, computing or waiting, so they begin first.
LONG_TESTS = test/conform/layers test/t7008-hosts.sh test/t7009-own-folders.sh test/t7002-kill.sh \
	test/t4003-pairs.sh test/t4002-programs.sh test/t6001-ucx-life.sh \
	test/t4005-memory.sh test/t7001-resume.sh test/t4021-amx.sh test/conform/partition \
	test/t7007-signals.sh test/t4006-updates.sh test/t4001-weights.sh test/t4008-recompute.sh \
	test/t4007-tied.sh test/t4009-mixed.sh test/t2001-plan.sh test/t2014-schedules.sh test/t8001-manual.sh \
	test/t8004-gpu-first.sh test/t4010-schedule-files.sh test/t4022-lstm.sh test/t6003-slurm.sh \
	test/t7010-bad-links.sh test/t7011-addresses.sh test/t7012-strangers.sh test/t4037-skips.sh test/t4030-buckets.sh \
	test/t9006-layouts.sh test/conform/iteration test/t9005-cudnn.sh test/conform/widened \
	test/unit/search test/unit/check
# These tests do not run with sanitizers, which find wrong accesses in the lines that run, whatever the
# numbers.  They call libraries that leak, read manual pages or sources, or only check figures of code that
# other tests run: t4005 the bytes that every run reports, t4011 the kernels of oneDNN.
SANITIZED_SKIP = $(LARGE_TESTS) test/t0002-completion.sh test/t0003-memory.sh \
	test/t2002-released.sh test/t4005-memory.sh test/t4011-kernels.sh \
	test/t6002-mpirun.sh test/t6003-slurm.sh test/t6004-topo.sh test/t6005-kinds.sh test/t7008-hosts.sh \
	test/t7009-own-folders.sh test/t7010-bad-links.sh test/t7011-addresses.sh test/t7012-strangers.sh \
	test/t8001-manual.sh test/t8002-layers.sh test/t8003-names.sh test/t8004-gpu-first.sh test/t8005-gpu-bundle.sh
# These tests do not run with sanitizers, since they train or replay what others do with other models, plans
# or data.  Replicas and optimizers are in t4001, a network of sequences in t4022, tokens and .npy in units,
# replays in t5001 and t5002, and shared memory in test/unit/transfers.
SANITIZED_SKIP += test/t4002-programs.sh test/t4012-minibatch.sh test/t4013-torch.sh \
	test/t4020-npy.sh test/t4023-gpt.sh test/t4024-text.sh test/t4025-images.sh \
	test/t4033-sums.sh test/t5003-links.sh test/t5004-wide.sh test/t5005-replicas.sh \
	test/t6001-ucx-life.sh
# Coverage says that these tests need not run with sanitizers (test/README).  Without them the list takes
# 12 % less processor time and reaches all but 34 of the 25,400 branches of lib and bin that it reached.  Of
# functions it misses cannot_send() of lib/run/launch/channel.c alone.  t4003 and t4006 reach little more, but
# they stay: they have several stages on a rank, so arrays of another length.
SANITIZED_SKIP += test/t4007-tied.sh test/t4008-recompute.sh test/t4015-pipemare.sh test/t7001-resume.sh \
	test/t7004-names.sh test/t7007-signals.sh
.PHONY: print-alone-tests print-beside-tests print-programs print-sanitized-tests
print-alone-tests:
	@echo $(filter $(ALONE_TESTS),$(TESTS))
print-beside-tests:
	@echo $(filter-out $(ALONE_TESTS),$(filter $(TESTS),$(LARGE_TESTS) $(LONG_TESTS)) \
		$(filter-out $(LARGE_TESTS) $(LONG_TESTS),$(TESTS)))
print-programs:
	@echo $(filter $(TESTS) $(SCRIPT_HELPERS),$(check_PROGRAMS))
print-sanitized-tests:
	@echo $(filter-out $(SANITIZED_SKIP),$(TESTS))

# print-readers lists what contrib/fuzz/run.sh builds: all that its readers call.
.PHONY: print-readers
print-readers:
	@echo $(foreach folder,base doors model network topology sums profile order plan memory schedule trace \
		engine/data engine/device checkpoint run/data,\
		$(filter lib/$(folder)/%,$(lib_libpd_a_OBJECTS) $(lib_libpddevice_a_OBJECTS)))

# check-gpu runs the tests that say most about a GPU.  Without a GPU it skips them, unless PD_GPU=yes.
GPU_TESTS = $(CONFORM) test/unit/cuda-arith test/t9001-gpu.sh test/t9002-gpu.sh \
	test/t9003-sanitizer.sh test/t9004-nccl.sh
.PHONY: check-gpu print-gpu-tests
check-gpu: all
	@if bin/pd-profile --device=cuda --no-link -i 1 $(srcdir)/share/models/lenet5.json \
	    >/dev/null 2>check-gpu.err; then \
		PD_GPU=yes $(MAKE) $(AM_MAKEFLAGS) check TESTS="$(GPU_TESTS)"; \
	elif [ "$${PD_GPU-}" != yes ] && grep -q "no GPU can be used" check-gpu.err; then \
		echo "================================================================"; \
		echo "check-gpu: SKIPPED, nothing was tested on a GPU:"; cat check-gpu.err; \
		echo "================================================================"; \
	else \
		cat check-gpu.err; exit 1; \
	fi
print-gpu-tests:
	@echo $(GPU_TESTS)
CLEANFILES += check-gpu.err
# These programs measure, and test nothing.
check_PROGRAMS += test/bench/replay-speed test/bench/speed test/bench/lstm test/bench/all-reduce \
	test/bench/start-up
test_bench_lstm_SOURCES = test/bench/lstm.c test/bench/onednn_lstm.c test/bench/onednn_lstm.h
test_bench_lstm_CPPFLAGS = $(AM_CPPFLAGS) $(ONEDNN_CPPFLAGS)
EXTRA_DIST += test/bench/hosts.sh test/bench/like.sh test/bench/published-layouts.sh test/bench/hosts-ddp.py test/bench/mixed.sh \
	test/bench/sum-of-layers.sh test/bench/two-workers.sh \
	test/bench/bench-lib.sh test/bench/plot.awk test/bench/vgg11.json test/bench/wide-mlp.json \
	test/bench/torch-plans.sh test/bench/convergence.sh test/bench/memory-time.sh test/bench/residuals.sh \
	test/bench/sparse-accuracy.sh \
	test/bench/papers-plans.sh test/bench/kinds.sh test/bench/megatron.sh test/bench/2bw-degrees.sh test/bench/own-device.sh \
	test/bench/monotone.sh test/bench/plan-search.sh test/bench/orders.sh test/bench/plan-speed.sh test/bench/prediction.sh test/bench/published.sh test/bench/updates.sh \
	test/bench/cpu-vs-torch.sh test/bench/cpu-vs-torch.py test/bench/sequences-vs-torch.sh \
	test/bench/sequences-vs-torch.py test/bench/gpu-vs-torch.sh \
	test/bench/gpu-vs-torch.py test/bench/all-reduce.sh test/bench/all-reduce.py \
	test/bench/gradientflow.sh test/bench/gradientflow-links.sh test/bench/rates.sh \
	test/bench/ranks.sh test/bench/schedules.sh test/bench/roofline.jq test/bench/topo.sh
