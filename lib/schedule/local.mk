lib_libpd_a_SOURCES += lib/schedule/timeline.c lib/schedule/timeline.h \
	lib/schedule/schedule.c lib/schedule/schedule.h lib/schedule/op_kind.def
