lib_libpd_a_SOURCES += \
	lib/doors/huggingface/config.c lib/doors/huggingface/config.def lib/doors/huggingface/config.h \
	lib/doors/huggingface/config_name.c lib/doors/huggingface/config_name.def \
	lib/doors/huggingface/config_rule.c lib/doors/huggingface/config_rule.h \
	lib/doors/huggingface/config_type.def
