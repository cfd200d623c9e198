EXTRA_DIST += share/aclocal/pd_cuda.m4 share/aclocal/pd_nccl.m4 share/aclocal/pd_require.m4
modelsdir = $(pkgdatadir)/models
dist_models_DATA = \
	share/models/alexnet.json \
	share/models/fashion-cnn.json \
	share/models/lenet5.json \
	share/models/mlp.json \
	share/models/resnet18.json \
	share/models/resnet50.json \
	share/models/vgg16.json
