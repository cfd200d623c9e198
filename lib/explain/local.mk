lib_libpd_a_SOURCES += \
	lib/explain/answer.c lib/explain/answer.h \
	lib/explain/draw_dot.c \
	lib/explain/draw_machine.c \
	lib/explain/draw_stages.c \
	lib/explain/draw_svg.c lib/explain/draw_svg.h \
	lib/explain/explain.c lib/explain/explain.h \
	lib/explain/remarks.c lib/explain/remarks.h \
	lib/explain/top.c lib/explain/top.h \
	lib/explain/usage.c lib/explain/usage.h
