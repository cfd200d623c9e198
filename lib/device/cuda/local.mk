# With CUDA the device, else one that says there is none.  Kernels: nvcc compiles them with
# multiplications and additions apart, as the CPU's loops are, and tiny numbers taken as zero.
CUDA_KERNELS = lib/device/cuda/additive_attention.cu lib/device/cuda/attention.cu \
	lib/device/cuda/attention_bias.cu lib/device/cuda/attention_mma.cu \
	lib/device/cuda/axes.cu lib/device/cuda/bias.cu lib/device/cuda/broadcast.cu \
	lib/device/cuda/eltwise.cu lib/device/cuda/embedding.cu \
	lib/device/cuda/groupnorm.cu lib/device/cuda/layernorm.cu lib/device/cuda/layout.cu lib/device/cuda/loss.cu \
	lib/device/cuda/lstm.cu lib/device/cuda/mixed_sum.cu lib/device/cuda/norm.cu \
	lib/device/cuda/norm_back.cu lib/device/cuda/pass_numbers.cu lib/device/cuda/pool.cu \
	lib/device/cuda/prelu.cu lib/device/cuda/softmax.cu \
	lib/device/cuda/chunks.cu lib/device/cuda/squares.cu \
	lib/device/cuda/update.cu lib/device/cuda/upsample.cu lib/device/cuda/widen.cu
CUDA_INCLUDED = lib/device/cuda/arith.h lib/device/cuda/attention.cuh lib/device/cuda/mma.cuh \
	lib/device/cuda/host_device.cuh \
	lib/device/cuda/block_sum.cuh lib/device/cuda/channels.cuh lib/device/cuda/columns.cuh \
	lib/device/cuda/grid.cuh \
	lib/device/cuda/kernels.h lib/device/cuda/typed.cuh lib/device/mixed_sum.h lib/model/relative.h lib/model/kind.h lib/model/dtype.h lib/model/dtype.def
EXTRA_DIST += $(CUDA_KERNELS) $(CUDA_INCLUDED)
NVCCFLAGS = -std=c++17 -O3 --fmad=false --ftz=true
if HAVE_CUDA
CUDA_OBJECTS = $(CUDA_KERNELS:.cu=.o)
lib_libpddevice_a_SOURCES += \
	lib/device/cuda/additive_attention.c lib/device/cuda/attention.c lib/device/cuda/axes.c \
	lib/device/cuda/batchnorm2d.c lib/device/cuda/broadcast.c \
	lib/device/cuda/choice.c lib/device/cuda/choice.h \
	lib/device/cuda/clock.c \
	lib/device/cuda/conv2d.c lib/device/cuda/conv2d.h lib/device/cuda/conv2d_choose.c \
	lib/device/cuda/conv2d_engine.c \
	lib/device/cuda/conv2d_graph.c lib/device/cuda/conv2d_graph.h \
	lib/device/cuda/conv2d_widen.c \
	lib/device/cuda/descriptor.h lib/device/cuda/engine_name.h \
	lib/device/cuda/cuda.c lib/device/cuda/cuda.h \
	lib/device/cuda/eltwise.c \
	lib/device/cuda/embedding.c \
	lib/device/cuda/poller.c \
	lib/device/cuda/graph.c lib/device/cuda/graph.h \
	lib/device/cuda/groupnorm.c lib/device/cuda/layernorm.c \
	lib/device/cuda/layout.c \
	lib/device/cuda/linear.c \
	lib/device/cuda/loss.c \
	lib/device/cuda/lstm.c \
	lib/device/cuda/join.c \
	lib/device/cuda/net.c \
	lib/device/cuda/plain.c \
	lib/device/cuda/pool2d.c lib/device/cuda/prelu.c lib/device/cuda/softmax.c \
	lib/device/cuda/product.c lib/device/cuda/product.h \
	lib/device/cuda/graph_cache.c lib/device/cuda/graph_cache.h \
	lib/device/cuda/stream.c lib/device/cuda/stream.h lib/device/cuda/upsample.c
lib/device/cuda/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(CUDA_CPPFLAGS)
lib_libpddevice_a_LIBADD = $(CUDA_OBJECTS)
PD_DEVICE_LIBS += $(CUDA_LDFLAGS) $(CUDA_LIBS)
CLEANFILES += $(CUDA_OBJECTS)

# what these include: few and seldom changed
$(CUDA_OBJECTS): $(CUDA_INCLUDED) lib/base/rng.h lib/base/inline.h lib/device/update.h lib/device/optimizer.def lib/device/hyper.def \
	lib/device/curve.h lib/device/curve.def lib/device/global_norm.h
$(CUDA_OBJECTS): %.o: %.cu
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) $(NVCCFLAGS) $(CUDA_GENCODE) -I$(top_srcdir)/lib \
		$(NVCC_WERROR) -Xcompiler -Wall,-Wno-unused-parameter,-fno-exceptions,-fno-threadsafe-statics \
		-c $< -o $@
else
lib_libpddevice_a_SOURCES += lib/device/cuda/absent.c
endif
