lib_libpd_a_SOURCES += \
	lib/engine/worker/batch.c \
	lib/engine/worker/checkpoint.c \
	lib/engine/worker/discrepancy.c \
	lib/engine/worker/global_norm.c \
	lib/engine/worker/internal.h \
	lib/engine/worker/issue.c lib/engine/worker/issue.h \
	lib/engine/worker/memory.c \
	lib/engine/worker/optimizer.c lib/engine/worker/optimizer.h \
	lib/engine/worker/pass.c \
	lib/engine/worker/retire.c \
	lib/engine/worker/tied_weights.c \
	lib/engine/worker/transfer.c \
	lib/engine/worker/update.c \
	lib/engine/worker/weights.c lib/engine/worker/weights.h \
	lib/engine/worker/worker.c lib/engine/worker/worker.h
