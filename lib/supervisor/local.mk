lib_libpddevice_a_SOURCES += lib/supervisor/divergence.c \
	lib/supervisor/expected.c lib/supervisor/expected.h lib/supervisor/failure.c lib/supervisor/folders.c \
	lib/supervisor/internal.h lib/supervisor/mapping.c lib/supervisor/pace.c lib/supervisor/pace.h \
	lib/supervisor/pending.c lib/supervisor/report.c lib/supervisor/report.h lib/supervisor/signals.c \
	lib/supervisor/supervisor.c lib/supervisor/supervisor.h lib/supervisor/tally.c lib/supervisor/tally.h \
	lib/supervisor/trace_parts.c lib/supervisor/watch.c
