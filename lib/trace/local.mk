lib_libpd_a_SOURCES += lib/trace/colours.c lib/trace/colours.h \
	lib/trace/drift.c lib/trace/drift.h lib/trace/durations.c lib/trace/durations.h lib/trace/read.c lib/trace/trace.c lib/trace/trace.h \
	lib/trace/steady.h lib/trace/steady.c \
	lib/trace/recurrence.h lib/trace/recurrence.c lib/trace/timeline.h lib/trace/timeline.c \
	lib/trace/memory.c lib/trace/transfers.c \
	lib/trace/arrivals.h lib/trace/arrivals.c lib/trace/report.h lib/trace/report.c \
	lib/trace/compare.h lib/trace/compare.c lib/trace/time_spent.c lib/trace/phases.c \
	lib/trace/outline.c lib/trace/outline.h lib/trace/window.c lib/trace/window.h \
	lib/trace/out_compare.c lib/trace/out_data.c \
	lib/trace/out_report.c lib/trace/out_text.c lib/trace/out_svg.c lib/trace/pane.c lib/trace/pane.h lib/trace/title.c lib/trace/out_chrome.c
