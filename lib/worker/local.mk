lib_libpd_a_SOURCES += lib/worker/agree.c lib/worker/checkpoint.c lib/worker/correct.c \
	lib/worker/internal.h lib/worker/issue.c lib/worker/issue.h lib/worker/join.c \
	lib/worker/memory.c \
	lib/worker/optimizer.c lib/worker/optimizer.h lib/worker/pass.c lib/worker/retire.c \
	lib/worker/tie.c lib/worker/transfer.c lib/worker/update.c \
	lib/worker/worker.c lib/worker/worker.h
