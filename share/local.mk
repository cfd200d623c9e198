EXTRA_DIST += share/aclocal/pd_cuda.m4 share/aclocal/pd_nccl.m4 share/aclocal/pd_onnx.m4 share/aclocal/pd_require.m4
modelsdir = $(pkgdatadir)/models
dist_models_DATA = \
	share/models/alexnet.json \
	share/models/fashion-cnn.json \
	share/models/lenet5.json \
	share/models/mlp.json \
	share/models/resnet18.json \
	share/models/resnet50.json \
	share/models/vgg16.json

devicesdir = $(pkgdatadir)/devices
dist_devices_DATA = \
	share/devices/a100-40.json \
	share/devices/a100-80.json \
	share/devices/b200.json \
	share/devices/h100-pcie.json \
	share/devices/h100-sxm.json \
	share/devices/h200.json \
	share/devices/l40s.json \
	share/devices/mi300x.json \
	share/devices/rtx-4090.json \
	share/devices/v100-16.json \
	share/devices/v100-32.json

machinesdir = $(pkgdatadir)/machines
dist_machines_DATA = \
	share/machines/a3-high.json \
	share/machines/a3-mega.json \
	share/machines/dgx-a100.json \
	share/machines/dgx-b200.json \
	share/machines/dgx-h100.json \
	share/machines/dgx-h200.json \
	share/machines/hgx-h100-1nic.json \
	share/machines/hgx-h100-4nic.json \
	share/machines/hgx-h100-8nic.json \
	share/machines/mi300x.json \
	share/machines/nd-v4.json \
	share/machines/nd-v5.json \
	share/machines/p4d.json \
	share/machines/p5.json

# What PyTorch's users run with their own Python.
torchdir = $(pkgdatadir)/torch
dist_torch_SCRIPTS = share/torch/pd_profile.py share/torch/pd_run.py share/torch/write-tokens.py

# bash completion, out of the programs' own tables of options
completiondir = $(datadir)/bash-completion/completions
completion_DATA = share/completions/pd-export share/completions/pd-model share/completions/pd-plan share/completions/pd-profile \
	share/completions/pd-replay share/completions/pd-run share/completions/pd-schedule \
	share/completions/pd-topo
CLEANFILES += $(completion_DATA)
share/completions/pd-export: bin/pd-export$(EXEEXT)
share/completions/pd-model: bin/pd-model$(EXEEXT)
share/completions/pd-plan: bin/pd-plan$(EXEEXT)
share/completions/pd-profile: bin/pd-profile$(EXEEXT)
share/completions/pd-replay: bin/pd-replay$(EXEEXT)
share/completions/pd-run: bin/pd-run$(EXEEXT)
share/completions/pd-schedule: bin/pd-schedule$(EXEEXT)
share/completions/pd-topo: bin/pd-topo$(EXEEXT)
$(completion_DATA):
	@$(MKDIR_P) share/completions
	$(AM_V_GEN)bin/$(@F)$(EXEEXT) --completion >$@.tmp && mv $@.tmp $@
