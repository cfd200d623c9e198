lib_libpd_a_SOURCES += lib/order/order.c lib/order/order.h lib/order/text.c \
	lib/order/walk.c lib/order/walk.h lib/order/certify.c \
	lib/order/price.c lib/order/request.h lib/order/run.h \
	lib/order/made.h lib/order/chain.c lib/order/vee.c lib/order/block.c lib/order/squeeze.c
