lib_libpd_a_SOURCES += lib/schedule/ideal.c lib/schedule/ideal.h \
	lib/schedule/schedule.c lib/schedule/schedule.h lib/schedule/op_kind.def
