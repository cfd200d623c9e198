lib_libpd_a_SOURCES += \
	lib/network/bert.c \
	lib/network/builder.c lib/network/builder.h \
	lib/network/causal.c \
	lib/network/family.c \
	lib/network/image.c \
	lib/network/llama.c \
	lib/network/megatron.c \
	lib/network/network.h \
	lib/network/option.def \
	lib/network/recurrent.c \
	lib/network/transformer.c lib/network/transformer.h \
	lib/network/vit.c
