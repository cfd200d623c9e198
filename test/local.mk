# Tests speak TAP.  test/unit: one file per noun of lib; test/conform: kernels against plain C;
# test/tNNNN-*.sh: what a person could type, numbered from basic to complex (see test/README).
TAP_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/contrib/build-aux/tap-driver.sh
LOG_DRIVER = $(TAP_DRIVER)
SH_LOG_DRIVER = $(TAP_DRIVER)
TEST_EXTENSIONS = .sh
SH_LOG_COMPILER = $(SHELL)
# Threads that wait sleep, as in pd-run: what runs beside them has the processors.
AM_TESTS_ENVIRONMENT = PD_SOURCE='$(abs_top_srcdir)'; PD_BUILD='$(abs_top_builddir)'; \
	OMP_WAIT_POLICY=passive; export PD_SOURCE PD_BUILD OMP_WAIT_POLICY;
EXTRA_DIST += test/test-lib.sh test/README

check_LIBRARIES = test/libtap.a
test_libtap_a_SOURCES = test/tap.c test/tap.h
test_libtap_a_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test
UNIT_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test
UNIT_LIBS = test/libtap.a $(PD_LIBS)
UNIT_DEVICE_LIBS = test/libtap.a $(PD_DEVICE_LIBS)

include test/conform/local.mk

# all programs
TESTS += test/t0001-streams.sh test/t0002-completion.sh test/t0003-memory.sh
EXTRA_DIST += test/t0001-streams.sh test/t0002-completion.sh test/t0003-memory.sh

# transports
check_PROGRAMS += test/unit/ucx test/unit/ucx-end test/unit/collective test/unit/link
TESTS += test/unit/ucx test/unit/ucx-end test/unit/collective test/unit/link
test_unit_link_SOURCES = test/unit/link.c
test_unit_link_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_link_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_ucx_SOURCES = test/unit/ucx.c test/unit/ranks.c test/unit/ranks.h
test_unit_ucx_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_ucx_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_ucx_end_SOURCES = test/unit/ucx-end.c test/unit/ranks.c test/unit/ranks.h
test_unit_ucx_end_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_ucx_end_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_collective_SOURCES = test/unit/collective.c test/unit/ranks.c test/unit/ranks.h
test_unit_collective_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_collective_LDADD = $(UNIT_DEVICE_LIBS)
check_PROGRAMS += test/unit/allreduce
TESTS += test/unit/allreduce
test_unit_allreduce_SOURCES = test/unit/allreduce.c
test_unit_allreduce_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_allreduce_LDADD = $(UNIT_DEVICE_LIBS)
check_PROGRAMS += test/unit/ucx-life
test_unit_ucx_life_SOURCES = test/unit/ucx-life.c test/unit/ranks.c test/unit/ranks.h
test_unit_ucx_life_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_ucx_life_LDADD = $(UNIT_DEVICE_LIBS)
TESTS += test/t6001-ucx-life.sh
EXTRA_DIST += test/t6001-ucx-life.sh

# NCCL's transport over a double of NCCL
check_PROGRAMS += test/unit/nccl
TESTS += test/unit/nccl
test_unit_nccl_SOURCES = test/unit/nccl.c test/double/nccl.c test/double/nccl.h $(NCCL_TRANSPORT)
test_unit_nccl_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/double -I$(top_srcdir)/test
test_unit_nccl_LDADD = $(UNIT_DEVICE_LIBS)

# virtual time, timelines, replay
check_PROGRAMS += test/unit/tile
TESTS += test/unit/tile
test_unit_tile_SOURCES = test/unit/tile.c
test_unit_tile_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_tile_LDADD = $(UNIT_DEVICE_LIBS)
check_PROGRAMS += test/unit/sim
TESTS += test/unit/sim
test_unit_sim_SOURCES = test/unit/sim.c
test_unit_sim_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_sim_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/timeline
TESTS += test/unit/timeline
test_unit_timeline_SOURCES = test/unit/timeline.c
test_unit_timeline_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_timeline_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/replay
TESTS += test/unit/replay
test_unit_replay_SOURCES = test/unit/replay.c test/unit/replayed.h
test_unit_replay_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_replay_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/published
TESTS += test/unit/published
test_unit_published_SOURCES = test/unit/published.c test/unit/replayed.h
test_unit_published_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_published_LDADD = $(UNIT_LIBS)
EXTRA_DIST += test/t4009-mixed.sh
TESTS += test/t4009-mixed.sh
EXTRA_DIST += test/t4010-schedule-files.sh
TESTS += test/t4010-schedule-files.sh
EXTRA_DIST += test/t4011-kernels.sh test/t4018-beforehand.sh
TESTS += test/t4011-kernels.sh test/t4018-beforehand.sh
EXTRA_DIST += test/t4012-minibatch.sh test/t4017-losses.sh
TESTS += test/t4012-minibatch.sh test/t4017-losses.sh
EXTRA_DIST += test/t4013-torch.sh test/torch-judge.py test/t4020-npy.sh test/t4021-amx.sh test/emulated/amx.c
TESTS += test/t4013-torch.sh test/t4020-npy.sh test/t4021-amx.sh
EXTRA_DIST += test/t5001-replay.sh test/t5002-what-if.sh test/t5003-links.sh test/t5004-wide.sh
TESTS += test/t5001-replay.sh test/t5002-what-if.sh test/t5003-links.sh test/t5004-wide.sh

# data and checkpoints
DATA_UNITS = test/unit/checksum test/unit/dataset test/unit/loader test/unit/npy test/unit/safetensors \
	test/unit/tokens test/unit/checkpoint test/unit/damage test/unit/lock
check_PROGRAMS += $(DATA_UNITS)
TESTS += $(DATA_UNITS)
test_unit_checksum_SOURCES = test/unit/checksum.c
test_unit_checksum_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_checksum_LDADD = $(UNIT_LIBS)
test_unit_dataset_SOURCES = test/unit/dataset.c test/unit/scratch.c test/unit/scratch.h \
	test/unit/small_model.h
test_unit_dataset_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_dataset_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_loader_SOURCES = test/unit/loader.c test/unit/small_model.h
test_unit_loader_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_loader_LDADD = $(UNIT_LIBS)
test_unit_npy_SOURCES = test/unit/npy.c test/unit/scratch.c test/unit/scratch.h \
	test/unit/small_model.h
test_unit_npy_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_npy_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_tokens_SOURCES = test/unit/tokens.c test/unit/scratch.c test/unit/scratch.h \
	test/unit/small_model.h
test_unit_tokens_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_tokens_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_safetensors_SOURCES = test/unit/safetensors.c test/unit/scratch.c test/unit/scratch.h
test_unit_safetensors_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_safetensors_LDADD = $(UNIT_LIBS)
SMALL_CHECKPOINT = test/unit/small_checkpoint.c test/unit/small_checkpoint.h test/unit/scratch.c \
	test/unit/scratch.h
test_unit_checkpoint_SOURCES = test/unit/checkpoint.c $(SMALL_CHECKPOINT)
test_unit_damage_SOURCES = test/unit/damage.c $(SMALL_CHECKPOINT)
test_unit_damage_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_damage_LDADD = $(UNIT_LIBS)
test_unit_lock_SOURCES = test/unit/lock.c test/unit/scratch.c test/unit/scratch.h
test_unit_lock_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_lock_LDADD = $(UNIT_LIBS)
test_unit_checkpoint_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_checkpoint_LDADD = $(UNIT_LIBS)

EXTRA_DIST += test/t7005-checkpoints.sh test/t7006-init.sh
TESTS += test/t7005-checkpoints.sh test/t7006-init.sh

# documents
DOCUMENT_UNITS = test/unit/figures test/unit/half test/unit/json test/unit/memory test/unit/model test/unit/number test/unit/plan \
	test/unit/profile test/unit/topology test/unit/trace test/unit/wiring
check_PROGRAMS += $(DOCUMENT_UNITS) test/unit/read-document
TESTS += $(DOCUMENT_UNITS)
test_unit_figures_SOURCES = test/unit/figures.c
test_unit_figures_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_figures_LDADD = $(UNIT_LIBS)
test_unit_half_SOURCES = test/unit/half.c
test_unit_half_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_half_LDADD = $(UNIT_LIBS)
test_unit_json_SOURCES = test/unit/json.c test/unit/document.h
test_unit_json_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_json_LDADD = $(UNIT_LIBS)
test_unit_memory_SOURCES = test/unit/memory.c test/unit/small_profile.h
test_unit_memory_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_memory_LDADD = $(UNIT_LIBS)
test_unit_model_SOURCES = test/unit/model.c test/unit/document.h
test_unit_model_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_model_LDADD = $(UNIT_LIBS)
test_unit_number_SOURCES = test/unit/number.c
test_unit_number_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_number_LDADD = $(UNIT_LIBS)
test_unit_plan_SOURCES = test/unit/plan.c test/unit/document.h test/unit/small_profile.h
test_unit_plan_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_plan_LDADD = $(UNIT_LIBS)
test_unit_profile_SOURCES = test/unit/profile.c test/unit/document.h
test_unit_profile_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_profile_LDADD = $(UNIT_LIBS)
test_unit_read_document_SOURCES = test/unit/read-document.c test/unit/read_plan.h
test_unit_read_document_LDADD = $(PD_LIBS)
test_unit_topology_SOURCES = test/unit/topology.c test/unit/document.h
test_unit_topology_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_topology_LDADD = $(UNIT_LIBS)
test_unit_trace_SOURCES = test/unit/trace.c test/unit/document.h test/unit/small_profile.h
test_unit_trace_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_trace_LDADD = $(UNIT_LIBS)
test_unit_wiring_SOURCES = test/unit/wiring.c test/unit/document.h test/unit/small_profile.h
test_unit_wiring_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_wiring_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/malform
test_unit_malform_SOURCES = test/unit/malform.c
test_unit_malform_LDADD = $(PD_LIBS)
TESTS += test/t1001-malformed.sh
EXTRA_DIST += test/t1001-malformed.sh test/data/small-model.json test/data/small-profile.json \
	test/data/small-topology.json test/data/small-plan.json test/data/small-trace.jsonl \
	test/data/fuzz/checkpoint/adam test/data/fuzz/checkpoint/initial \
	test/data/fuzz/checkpoint/one test/data/fuzz/checkpoint/two \
	test/data/fuzz/cifar/one test/data/fuzz/idx/four test/data/fuzz/safetensors/small \
	test/data/fuzz/npy/plain test/data/fuzz/npy/wide \
	test/data/fuzz/topology-string/levels
check_PROGRAMS += test/unit/seeds
test_unit_seeds_SOURCES = test/unit/seeds.c contrib/fuzz/fuzz.c
test_unit_seeds_LDADD = $(PD_DEVICE_LIBS)
TESTS += test/t1002-seeds.sh test/t1003-pd-model.sh
EXTRA_DIST += test/t1002-seeds.sh test/t1003-pd-model.sh
TESTS += test/t8001-manual.sh test/t8004-gpu-first.sh
EXTRA_DIST += test/t8001-manual.sh test/t8004-gpu-first.sh

# schedules and versions
TABLE = test/unit/table.c test/unit/table.h test/unit/small_profile.h
check_PROGRAMS += test/unit/schedule test/unit/weights
TESTS += test/unit/schedule test/unit/weights
test_unit_schedule_SOURCES = test/unit/schedule.c $(TABLE)
test_unit_schedule_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_schedule_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/recurrence
TESTS += test/unit/recurrence
test_unit_recurrence_SOURCES = test/unit/recurrence.c test/unit/small_profile.h
test_unit_recurrence_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_recurrence_LDADD = $(UNIT_LIBS)

check_PROGRAMS += test/unit/join
TESTS += test/unit/join
test_unit_join_SOURCES = test/unit/join.c test/unit/small_profile.h
test_unit_join_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_join_LDADD = $(UNIT_LIBS)

check_PROGRAMS += test/unit/period
TESTS += test/unit/period
test_unit_period_SOURCES = test/unit/period.c test/unit/small_profile.h
test_unit_period_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_period_LDADD = $(UNIT_LIBS)
test_unit_weights_SOURCES = test/unit/weights.c
test_unit_weights_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_weights_LDADD = $(UNIT_LIBS)

# the house
TESTS += test/t8002-layers.sh
EXTRA_DIST += test/t8002-layers.sh

# planner
check_PROGRAMS += test/unit/search
TESTS += test/unit/search
test_unit_search_SOURCES = test/unit/search.c test/unit/made_up.h
test_unit_search_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_search_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/planner
TESTS += test/unit/planner
test_unit_planner_SOURCES = test/unit/planner.c test/unit/made_up.h
test_unit_planner_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_planner_LDADD = $(UNIT_LIBS)
TESTS += test/t2001-plan.sh
EXTRA_DIST += test/t2001-plan.sh
TESTS += test/t2003-bad-input.sh test/t2004-batch.sh
EXTRA_DIST += test/t2003-bad-input.sh test/t2004-batch.sh
check_PROGRAMS += test/unit/bound
TESTS += test/unit/bound
test_unit_bound_SOURCES = test/unit/bound.c test/unit/made_up.h
test_unit_bound_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_bound_LDADD = $(UNIT_LIBS)
TESTS += test/t2002-released.sh
EXTRA_DIST += test/t2002-released.sh
check_PROGRAMS += test/unit/levels
TESTS += test/unit/levels
test_unit_levels_SOURCES = test/unit/levels.c test/unit/small_profile.h
test_unit_levels_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_levels_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/states
TESTS += test/unit/states
test_unit_states_SOURCES = test/unit/states.c test/unit/small_profile.h
test_unit_states_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_states_LDADD = $(UNIT_LIBS)
check_PROGRAMS += test/unit/views
TESTS += test/unit/views
test_unit_views_SOURCES = test/unit/views.c test/unit/small_profile.h
test_unit_views_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_views_LDADD = $(UNIT_LIBS)

check_PROGRAMS += test/unit/channel test/unit/failure test/unit/launcher test/unit/heartbeat \
	test/unit/meeting test/unit/tally
TESTS += test/unit/channel test/unit/failure test/unit/launcher test/unit/heartbeat test/unit/meeting \
	test/unit/tally
test_unit_meeting_SOURCES = test/unit/meeting.c
test_unit_meeting_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_meeting_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_tally_SOURCES = test/unit/tally.c
test_unit_tally_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_tally_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_channel_SOURCES = test/unit/channel.c
test_unit_channel_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_channel_LDADD = $(UNIT_LIBS)
test_unit_launcher_SOURCES = test/unit/launcher.c test/unit/read_plan.h
test_unit_launcher_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_launcher_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_heartbeat_SOURCES = test/unit/heartbeat.c
test_unit_heartbeat_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_heartbeat_LDADD = $(UNIT_LIBS)
test_unit_failure_SOURCES = test/unit/failure.c
test_unit_failure_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_failure_LDADD = $(UNIT_DEVICE_LIBS)

# training: right, stopped, killed, resumed
TRAIN_SH = test/t4001-weights.sh test/t4002-programs.sh test/t4003-pairs.sh \
	test/t4016-reports.sh test/t4019-large.sh test/t7001-resume.sh test/t7002-kill.sh test/t7004-names.sh test/t7007-signals.sh
check_PROGRAMS += test/conform/serial test/conform/same-tensors
test_conform_serial_SOURCES = test/conform/serial.c test/conform/serial.h \
	test/conform/serial_rule.c test/conform/serial_tensor.c test/conform/serial_update.c
test_conform_serial_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_serial_LDADD = $(PD_DEVICE_LIBS)
test_conform_same_tensors_SOURCES = test/conform/same-tensors.c
test_conform_same_tensors_LDADD = $(PD_LIBS)
HOSTS_SH = test/t6002-mpirun.sh test/t6003-slurm.sh test/t7008-hosts.sh
TESTS += $(TRAIN_SH) $(HOSTS_SH)
EXTRA_DIST += $(TRAIN_SH) $(HOSTS_SH) test/train-lib.sh test/hosts-lib.sh contrib/hosts.sh

# schedules as documents
RENDEZVOUS = test/unit/rendezvous.c test/unit/rendezvous.h
check_PROGRAMS += test/unit/check test/unit/edits test/unit/trace-memory
TESTS += test/unit/check test/unit/edits test/unit/trace-memory
test_unit_check_SOURCES = test/unit/check.c test/unit/made_lists.h $(TABLE) $(RENDEZVOUS)
test_unit_check_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_check_LDADD = $(UNIT_LIBS)
test_unit_edits_SOURCES = test/unit/edits.c test/unit/made_lists.h $(TABLE) $(RENDEZVOUS)
test_unit_edits_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_edits_LDADD = $(UNIT_LIBS)
test_unit_trace_memory_SOURCES = test/unit/trace-memory.c test/unit/made_lists.h $(TABLE)
test_unit_trace_memory_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_trace_memory_LDADD = $(UNIT_LIBS)
TESTS += test/t3001-schedule.sh
EXTRA_DIST += test/t3001-schedule.sh test/data/small-schedule.jsonl

# memory: predicted and allocated
TESTS += test/t4005-memory.sh test/t4015-pipemare.sh
EXTRA_DIST += test/t4005-memory.sh test/t4015-pipemare.sh

# updates that all stages agree on
TESTS += test/t4006-updates.sh
EXTRA_DIST += test/t4006-updates.sh
TESTS += test/t4007-tied.sh
EXTRA_DIST += test/t4007-tied.sh

# recomputation
TESTS += test/t4008-recompute.sh
EXTRA_DIST += test/t4008-recompute.sh

# stages that are not runs of layers
TESTS += test/t4014-order.sh
EXTRA_DIST += test/t4014-order.sh

# backward in two parts
TESTS += test/t4004-split.sh
EXTRA_DIST += test/t4004-split.sh

# optimizers and learning rates
check_PROGRAMS += test/unit/optimizer
TESTS += test/unit/optimizer
test_unit_optimizer_SOURCES = test/unit/optimizer.c
test_unit_optimizer_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_optimizer_LDADD = $(UNIT_LIBS)

# GPUs: what can be seen without one
check_PROGRAMS += test/unit/cuda-arith
TESTS += test/unit/cuda-arith test/t9001-gpu.sh test/t9002-gpu.sh test/t9003-sanitizer.sh \
	test/t9004-nccl.sh
EXTRA_DIST += test/t9001-gpu.sh test/t9002-gpu.sh test/t9003-sanitizer.sh test/t9004-nccl.sh \
	contrib/gpu-bundle.sh contrib/gpu-first.sh \
	contrib/run-here.sh contrib/emulate-cuda.sh contrib/ptxas.sh test/emulated/nvcc test/emulated/emulated.h \
	test/emulated/number.h test/emulated/runtime.cc test/emulated/cudnn.cc \
	test/emulated/cublaslt.cc test/emulated/graph.h
test_unit_cuda_arith_SOURCES = test/unit/cuda-arith.c
test_unit_cuda_arith_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_cuda_arith_LDADD = $(UNIT_DEVICE_LIBS)

check_PROGRAMS += test/unit/cuda-choice test/unit/cuda-graph-cache
TESTS += test/unit/cuda-choice test/unit/cuda-graph-cache
test_unit_cuda_choice_SOURCES = test/unit/cuda-choice.c
test_unit_cuda_choice_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_cuda_choice_LDADD = $(UNIT_LIBS)
test_unit_cuda_graph_cache_SOURCES = test/unit/cuda-graph-cache.c lib/device/cuda/graph_cache.c \
	lib/device/cuda/graph_cache.h
test_unit_cuda_graph_cache_CPPFLAGS = $(UNIT_CPPFLAGS)
test_unit_cuda_graph_cache_LDADD = $(UNIT_LIBS)

# what cuDNN answers where there is no GPU
TESTS += test/t9005-cudnn.sh
EXTRA_DIST += test/t9005-cudnn.sh test/data/gpu-a100.json test/data/gpu-h100.json \
	test/data/grouped-convolutions.json test/data/odd-convolutions.json
if HAVE_CUDA
check_PROGRAMS += test/unit/cudnn
test_unit_cudnn_SOURCES = test/unit/cudnn.c test/double/described.c test/double/described.h
test_unit_cudnn_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/double -I$(top_srcdir)/test
test_unit_cudnn_LDADD = $(UNIT_DEVICE_LIBS)
test_unit_cudnn_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=cudnnBackendCreateDescriptor,--wrap=cudnnBackendSetAttribute
endif

# How contrib/check.sh runs the tests.
# Networks of hundreds of megabytes: in the plain build only.
LARGE_TESTS = test/conform/devices test/t4019-large.sh
# They measure processor time, which others beside them would change: one after the other.
ALONE_TESTS = test/t4002-programs.sh test/t6001-ucx-life.sh
# They take longest, computing or waiting, and begin first.
LONG_TESTS = test/t7008-hosts.sh test/t7002-kill.sh test/t4003-pairs.sh test/t4005-memory.sh test/t7001-resume.sh \
	test/t7007-signals.sh test/t4006-updates.sh test/t4001-weights.sh test/t4008-recompute.sh \
	test/t4007-tied.sh test/t4009-mixed.sh test/t2001-plan.sh test/t8001-manual.sh \
	test/t8004-gpu-first.sh test/t4010-schedule-files.sh
# They call libraries that leak, read pages or sources, or only hold against figures what others go
# through.
SANITIZED_SKIP = $(LARGE_TESTS) $(HOSTS_SH) test/t2002-released.sh test/t8001-manual.sh test/t8002-layers.sh
# Programs that scripts call; of check_PROGRAMS a build needs these and its tests.
SCRIPT_HELPERS = test/conform/serial test/conform/same-tensors test/unit/cudnn test/unit/malform \
	test/unit/read-document test/unit/seeds test/unit/ucx-life
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

# the tests that say most about a GPU; skips where there is none, unless PD_GPU=yes
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

# measured, not tested
check_PROGRAMS += test/bench/replay-speed
test_bench_replay_speed_SOURCES = test/bench/replay-speed.c
test_bench_replay_speed_CPPFLAGS = $(UNIT_CPPFLAGS)
test_bench_replay_speed_LDADD = $(UNIT_LIBS)
EXTRA_DIST += test/bench/mixed.sh test/bench/sum-of-layers.sh test/bench/two-workers.sh \
	test/bench/bench-lib.sh test/bench/plot.awk test/bench/vgg11.json test/bench/wide-mlp.json \
	test/bench/convergence.sh test/bench/memory-time.sh test/bench/residuals.sh \
	test/bench/plan-speed.sh test/bench/prediction.sh test/bench/published.sh
