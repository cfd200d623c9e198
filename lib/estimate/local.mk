lib_libpd_a_SOURCES += \
	lib/estimate/cost.c lib/estimate/cost.h \
	lib/estimate/estimate.c lib/estimate/estimate.h lib/estimate/exchange.c lib/estimate/exchange.h \
	lib/estimate/fit.c lib/estimate/kind_cost.def lib/estimate/products.c lib/estimate/sizes.c \
	lib/estimate/sizes.h lib/estimate/split.c \
	lib/estimate/split.h
