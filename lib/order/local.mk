lib_libpd_a_SOURCES += lib/order/order.c lib/order/order.h lib/order/text.c \
	lib/order/walk.c lib/order/walk.h lib/order/certify.c \
	lib/order/price.c lib/order/request.h lib/order/run.h \
	lib/order/made.h lib/order/chain.c lib/order/vee.c lib/order/block.c lib/order/squeeze.c \
	lib/order/build.h lib/order/build.c lib/order/found.h lib/order/found.c \
	lib/order/search.h lib/order/search.c lib/order/search_chain.c \
	lib/order/search_v.c lib/order/search_greedy.c lib/order/refill.c
