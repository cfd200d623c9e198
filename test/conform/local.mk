# kernels against plain C, on every device that this machine has
CONFORM = test/conform/devices test/conform/half test/conform/iteration test/conform/layers \
	test/conform/partition test/conform/stream test/conform/transfers test/conform/widened
if HAVE_CUDA
CONFORM += test/conform/kernels
test_conform_kernels_SOURCES = test/conform/kernels.c
test_conform_kernels_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_kernels_LDADD = $(UNIT_DEVICE_LIBS)
else
EXTRA_DIST += test/conform/kernels.c
endif
CONFORM_HELPERS = test/conform/chain.c test/conform/chain.h
check_PROGRAMS += $(CONFORM)
TESTS += $(CONFORM)
test_conform_devices_SOURCES = test/conform/devices.c $(CONFORM_HELPERS)
test_conform_devices_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_devices_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_half_SOURCES = test/conform/half.c
test_conform_half_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_half_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_iteration_SOURCES = test/conform/iteration.c $(CONFORM_HELPERS)
test_conform_iteration_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_iteration_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_layers_SOURCES = test/conform/layers.c test/conform/ref.c test/conform/ref.h \
	$(CONFORM_HELPERS)
test_conform_layers_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_layers_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_partition_SOURCES = test/conform/partition.c $(CONFORM_HELPERS)
test_conform_partition_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_partition_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_stream_SOURCES = test/conform/stream.c $(CONFORM_HELPERS)
test_conform_stream_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_stream_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_transfers_SOURCES = test/conform/transfers.c test/unit/ranks.c test/unit/ranks.h
test_conform_transfers_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_transfers_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_widened_SOURCES = test/conform/widened.c $(CONFORM_HELPERS)
test_conform_widened_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_widened_LDADD = $(UNIT_DEVICE_LIBS)

# measured, not tested: test/bench/cpu-vs-torch.sh
check_PROGRAMS += test/bench/speed
test_bench_speed_SOURCES = test/bench/speed.c $(CONFORM_HELPERS)
test_bench_speed_CPPFLAGS = $(UNIT_CPPFLAGS)
test_bench_speed_LDADD = $(UNIT_DEVICE_LIBS)
EXTRA_DIST += test/bench/cpu-vs-torch.sh test/bench/cpu-vs-torch.py \
	test/bench/gpu-vs-torch.sh test/bench/gpu-vs-torch.py
