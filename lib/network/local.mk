lib_libpd_a_SOURCES += \
	lib/network/bert.c \
	lib/network/builder.c lib/network/builder.h \
	lib/network/config.c lib/network/config.def lib/network/config.h \
	lib/network/config_name.c lib/network/config_name.def \
	lib/network/config_rule.c lib/network/config_rule.h \
	lib/network/family.c \
	lib/network/image.c \
	lib/network/llama.c \
	lib/network/megatron.c \
	lib/network/network.h lib/network/option.def \
	lib/network/recurrent.c \
	lib/network/transformer.c lib/network/transformer.h \
	lib/network/vit.c
