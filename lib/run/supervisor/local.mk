lib_libpddevice_a_SOURCES += \
	lib/run/supervisor/divergence.c \
	lib/run/supervisor/expected.c lib/run/supervisor/expected.h \
	lib/run/supervisor/failure.c \
	lib/run/supervisor/folders.c \
	lib/run/supervisor/internal.h \
	lib/run/supervisor/mapping.c \
	lib/run/supervisor/pace.c lib/run/supervisor/pace.h \
	lib/run/supervisor/pending.c \
	lib/run/supervisor/report.c lib/run/supervisor/report.h \
	lib/run/supervisor/signals.c \
	lib/run/supervisor/supervisor.c lib/run/supervisor/supervisor.h \
	lib/run/supervisor/tally.c lib/run/supervisor/tally.h \
	lib/run/supervisor/trace_parts.c \
	lib/run/supervisor/watch.c
