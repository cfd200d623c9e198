EXTRA_DIST += share/aclocal/pd_cuda.m4 share/aclocal/pd_require.m4
modelsdir = $(pkgdatadir)/models
dist_models_DATA =
