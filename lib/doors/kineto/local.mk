lib_libpd_a_SOURCES += \
	lib/doors/kineto/category.def lib/doors/kineto/event.def \
	lib/doors/kineto/blocks.c lib/doors/kineto/blocks.h \
	lib/doors/kineto/file.c lib/doors/kineto/file.h \
	lib/doors/kineto/finder.h \
	lib/doors/kineto/kineto.c lib/doors/kineto/kineto.h \
	lib/doors/kineto/layers.c \
	lib/doors/kineto/leaves.c lib/doors/kineto/leaves.h \
	lib/doors/kineto/modules.c lib/doors/kineto/modules.h \
	lib/doors/kineto/node.def \
	lib/doors/kineto/ops.c lib/doors/kineto/ops.h \
	lib/doors/kineto/passes.c lib/doors/kineto/passes.h \
	lib/doors/kineto/repeats.c \
	lib/doors/kineto/scan.c lib/doors/kineto/scan.h \
	lib/doors/kineto/trace.c lib/doors/kineto/trace.h \
	lib/doors/kineto/walk.c lib/doors/kineto/walk.h
