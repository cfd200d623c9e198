lib_libpd_a_SOURCES += \
	lib/order/block.c \
	lib/order/build.c lib/order/build.h \
	lib/order/certify.c \
	lib/order/chain.c \
	lib/order/extend.c \
	lib/order/found.c lib/order/found.h \
	lib/order/improve.c \
	lib/order/made.h \
	lib/order/order.c lib/order/order.h \
	lib/order/price.c \
	lib/order/refill.c \
	lib/order/request.h \
	lib/order/run.h \
	lib/order/search.c lib/order/search.h \
	lib/order/search_chain.c \
	lib/order/search_greedy.c \
	lib/order/search_v.c \
	lib/order/squeeze.c \
	lib/order/text.c \
	lib/order/vee.c \
	lib/order/walk.c lib/order/walk.h
