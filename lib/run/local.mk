# with the devices: it opens them, and the data
lib_libpddevice_a_SOURCES += \
	lib/run/begin.c lib/run/divergence.c lib/run/expected.c lib/run/expected.h lib/run/failure.c lib/run/folder.c lib/run/folders.c lib/run/internal.h \
	lib/run/job.c lib/run/job.h lib/run/job_message.c \
	lib/run/mapping.c lib/run/messages.c lib/run/pace.c lib/run/pace.h lib/run/pending.c \
	lib/run/phases.c \
	lib/run/rank.c lib/run/rank.h \
	lib/run/report.c lib/run/report.h lib/run/resume.c \
	lib/run/saver.c lib/run/saver.h lib/run/setup.c lib/run/share.c lib/run/signals.c \
	lib/run/supervisor.c lib/run/supervisor.h \
	lib/run/tally.c lib/run/tally.h \
	lib/run/trace_parts.c lib/run/watch.c
