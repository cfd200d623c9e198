lib_libpd_a_SOURCES += \
	lib/checkpoint/checkpoint.h \
	lib/checkpoint/safetensors.h
