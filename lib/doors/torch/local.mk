lib_libpd_a_SOURCES += \
	lib/doors/torch/action.def \
	lib/doors/torch/blocking.c \
	lib/doors/torch/complete.h \
	lib/doors/torch/lists.c \
	lib/doors/torch/number.c \
	lib/doors/torch/table.c lib/doors/torch/table.h \
	lib/doors/torch/torch.h \
	lib/doors/torch/transfers.c \
	lib/doors/torch/write.c
