# kernels against plain C, on every device that this machine has
CONFORM = test/conform/layers test/conform/partition
CONFORM_HELPERS = test/conform/chain.c test/conform/chain.h
check_PROGRAMS += $(CONFORM)
TESTS += $(CONFORM)
test_conform_layers_SOURCES = test/conform/layers.c test/conform/ref.c test/conform/ref.h \
	$(CONFORM_HELPERS)
test_conform_layers_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_layers_LDADD = $(UNIT_DEVICE_LIBS)
test_conform_partition_SOURCES = test/conform/partition.c $(CONFORM_HELPERS)
test_conform_partition_CPPFLAGS = $(UNIT_CPPFLAGS)
test_conform_partition_LDADD = $(UNIT_DEVICE_LIBS)
