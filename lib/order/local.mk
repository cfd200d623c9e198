lib_libpd_a_SOURCES += lib/order/order.c lib/order/order.h lib/order/text.c \
	lib/order/walk.c lib/order/walk.h lib/order/certify.c \
	lib/order/price.c lib/order/request.h
