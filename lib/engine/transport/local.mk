lib_libpd_a_SOURCES += \
	lib/engine/transport/sleep.c lib/engine/transport/transfers.c lib/engine/transport/transfers.h \
	lib/engine/transport/transport.h

include lib/engine/transport/sim/local.mk
