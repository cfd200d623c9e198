lib_libpd_a_SOURCES += \
	lib/trace/arrivals.c lib/trace/arrivals.h \
	lib/trace/colours.c lib/trace/colours.h \
	lib/trace/compare.c lib/trace/compare.h \
	lib/trace/durations.c lib/trace/durations.h \
	lib/trace/memory.c \
	lib/trace/out_chrome.c \
	lib/trace/out_compare.c \
	lib/trace/out_data.c \
	lib/trace/out_report.c \
	lib/trace/out_svg.c \
	lib/trace/out_text.c \
	lib/trace/outline.c lib/trace/outline.h \
	lib/trace/pane.c lib/trace/pane.h \
	lib/trace/phases.c \
	lib/trace/read.c \
	lib/trace/recurrence.c lib/trace/recurrence.h \
	lib/trace/report.c lib/trace/report.h \
	lib/trace/steady.c lib/trace/steady.h \
	lib/trace/time_spent.c \
	lib/trace/timeline.c lib/trace/timeline.h \
	lib/trace/title.c \
	lib/trace/trace.c lib/trace/trace.h \
	lib/trace/transfers.c \
	lib/trace/whole.c lib/trace/whole.h \
	lib/trace/window.c lib/trace/window.h
