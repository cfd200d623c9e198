lib_libpd_a_SOURCES += lib/worker/batch.c lib/worker/global_norm.c lib/worker/checkpoint.c lib/worker/discrepancy.c \
	lib/worker/internal.h lib/worker/issue.c lib/worker/issue.h \
	lib/worker/memory.c \
	lib/worker/optimizer.c lib/worker/optimizer.h lib/worker/pass.c lib/worker/retire.c \
	lib/worker/tied_weights.c lib/worker/transfer.c lib/worker/update.c \
	lib/worker/worker.c lib/worker/worker.h
