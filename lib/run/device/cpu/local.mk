lib_libpddevice_a_SOURCES += \
	lib/run/device/cpu/additive_attention.c \
	lib/run/device/cpu/attention.c lib/run/device/cpu/attention.h \
	lib/run/device/cpu/attention_tiles.c \
	lib/run/device/cpu/axes.c \
	lib/run/device/cpu/batchnorm2d.c \
	lib/run/device/cpu/broadcast.c \
	lib/run/device/cpu/chunks.c \
	lib/run/device/cpu/conv2d.c lib/run/device/cpu/conv_transpose2d.c \
	lib/run/device/cpu/curves.c \
	lib/run/device/cpu/cpu.c lib/run/device/cpu/cpu.h \
	lib/run/device/cpu/dnn.h lib/run/device/cpu/dnnl2.h \
	lib/run/device/cpu/dropout.c \
	lib/run/device/cpu/eltwise.c \
	lib/run/device/cpu/embedding.c \
	lib/run/device/cpu/exp.h \
	lib/run/device/cpu/floats.c lib/run/device/cpu/floats.h \
	lib/run/device/cpu/groupnorm.c lib/run/device/cpu/half.c \
	lib/run/device/cpu/layout.c \
	lib/run/device/cpu/layernorm.c \
	lib/run/device/cpu/linear.c lib/run/device/cpu/linear_transposed.c \
	lib/run/device/cpu/lstm.c lib/run/device/cpu/lstm.h lib/run/device/cpu/lstm_gates.c \
	lib/run/device/cpu/lstm_gradients.c lib/run/device/cpu/lstm_lanes.c \
	lib/run/device/cpu/lstm_steps.c lib/run/device/cpu/lstm_way.c \
	lib/run/device/cpu/loss.c \
	lib/run/device/cpu/maxpool.c lib/run/device/cpu/maxpool.h lib/run/device/cpu/mse.c \
	lib/run/device/cpu/move.c lib/run/device/cpu/mul.c \
	lib/run/device/cpu/rope.c \
	lib/run/device/cpu/join.c \
	lib/run/device/cpu/net.c \
	lib/run/device/cpu/onednn.c lib/run/device/cpu/onednn.h \
	lib/run/device/cpu/primitive.c \
	lib/run/device/cpu/linear_blocked.c \
	lib/run/device/cpu/plain.c \
	lib/run/device/cpu/pool2d.c lib/run/device/cpu/prelu.c \
	lib/run/device/cpu/primitives.c \
	lib/run/device/cpu/product.c lib/run/device/cpu/product.h \
	lib/run/device/cpu/quick.c \
	lib/run/device/cpu/softmax.c \
	lib/run/device/cpu/squares.c \
	lib/run/device/cpu/stream.c \
	lib/run/device/cpu/sum.c \
	lib/run/device/cpu/update.c lib/run/device/cpu/upsample.c \
	lib/run/device/cpu/reorder.c \
	lib/run/device/cpu/tile.c lib/run/device/cpu/tile.h lib/run/device/cpu/tile_kernels.h \
	lib/run/device/cpu/conv_linear.c
# oneDNN's threads are OpenMP's, and are counted with it; a square root that sets errno
# is not vectorised
lib_libpddevice_a_CFLAGS = $(AM_CFLAGS) -fopenmp -fno-math-errno
lib/run/device/cpu/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(ONEDNN_CPPFLAGS)
PD_DEVICE_LIBS += -lgomp
