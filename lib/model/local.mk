lib_libpd_a_SOURCES += lib/model/model.h lib/model/layer_kind.def
