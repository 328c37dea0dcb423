"""The keys of HAMi 2.10's values.yaml and their defaults, written down by hand from the inventory of
its interface: a line for each key, its default as YAML. ``-`` is one that its templates read and the
file does not list. Keys of an image are those of every image.
"""

IMAGE = "registry repository tag pullPolicy pullSecrets"

RECORDED = """
global.imageRegistry ""
global.imagePullSecrets []
global.imageTag v2.10.0
global.gpuHookPath /usr/local
global.labels {}
global.annotations {}
global.managedNodeSelectorEnable false
global.managedNodeSelector {usage: gpu}
nameOverride ""
fullnameOverride ""
namespaceOverride ""
resourceName nvidia.com/gpu
resourceMem nvidia.com/gpumem
resourceMemPercentage nvidia.com/gpumem-percentage
resourceCores nvidia.com/gpucores
resourcePriority nvidia.com/priority
mluResourceName cambricon.com/vmlu
mluResourceMem cambricon.com/mlu.smlu.vmemory
mluResourceCores cambricon.com/mlu.smlu.vcore
dcuResourceName hygon.com/dcunum
dcuResourceMem hygon.com/dcumem
dcuResourceCores hygon.com/dcucores
metaxResourceName metax-tech.com/sgpu
metaxResourceCore metax-tech.com/vcore
metaxResourceMem metax-tech.com/vmemory
metaxsGPUTopologyAware "false"
enflameResourceNameDRSGCU enflame.com/drs-gcu
enflameResourceNameGCUMemory enflame.com/gcu-memory
enflameResourceNameGCUCore enflame.com/gcu-core
kunlunResourceName kunlunxin.com/xpu
kunlunResourceVCountName kunlunxin.com/vxpu
kunlunResourceVMemoryName kunlunxin.com/vxpu-memory
vastaiResourceName vastaitech.com/va
birenResourceName birentech.com/gpu
schedulerName hami-scheduler
podSecurityPolicy.enabled false
scheduler.nodeName ""
scheduler.nodeLabelSelector -
scheduler.nodeSelector -
scheduler.serviceAccountName -
scheduler.overwriteEnv "false"
scheduler.defaultSchedulerPolicy.nodeSchedulerPolicy binpack
scheduler.defaultSchedulerPolicy.gpuSchedulerPolicy spread
scheduler.metricsBindAddress ":9395"
scheduler.forceOverwriteDefaultScheduler true
scheduler.livenessProbe false
scheduler.leaderElect true
scheduler.replicas 1
scheduler.nodeLockExpire 5m
scheduler.podAnnotations {}
scheduler.tolerations []
scheduler.kubeScheduler.enabled true
scheduler.kubeScheduler.image registry.cn-hangzhou.aliyuncs.com google_containers/kube-scheduler ""
scheduler.kubeScheduler.resources {}
scheduler.kubeScheduler.extraNewArgs [--config=/config/config.yaml, -v=4]
scheduler.kubeScheduler.extraArgs [--policy-config-file=/config/config.json, -v=4]
scheduler.extender.image docker.io projecthami/hami ""
scheduler.extender.resources {}
scheduler.extender.extraArgs [--debug, -v=4]
scheduler.admissionWebhook.enabled true
scheduler.admissionWebhook.customURL.enabled false
scheduler.admissionWebhook.customURL.host 127.0.0.1
scheduler.admissionWebhook.customURL.port 31998
scheduler.admissionWebhook.customURL.path /webhook
scheduler.admissionWebhook.whitelistNamespaces null
scheduler.admissionWebhook.manageNamespaceSelector true
scheduler.admissionWebhook.namespaceSelector.matchLabels null
scheduler.admissionWebhook.namespaceSelector.matchExpressions []
scheduler.admissionWebhook.objectSelector.matchLabels -
scheduler.admissionWebhook.objectSelector.matchExpressions []
scheduler.admissionWebhook.reinvocationPolicy Never
scheduler.admissionWebhook.failurePolicy Ignore
scheduler.certManager.enabled false
scheduler.patch.enabled true
scheduler.patch.image docker.io jettech/kube-webhook-certgen v1.5.2
scheduler.patch.imageNew docker.io liangjw/kube-webhook-certgen v1.1.1
scheduler.patch.priorityClassName ""
scheduler.patch.podAnnotations {}
scheduler.patch.nodeSelector {}
scheduler.patch.tolerations []
scheduler.patch.runAsUser 2000
scheduler.service.type NodePort
scheduler.service.httpPort 443
scheduler.service.schedulerPort 31998
scheduler.service.monitorPort 31993
scheduler.service.monitorTargetPort 9395
scheduler.service.httpTargetPort 443
scheduler.service.labels {}
scheduler.service.annotations {}
devicePlugin.enabled true
devicePlugin.gpuOperatorToolkitReady.enabled false
devicePlugin.gpuOperatorToolkitReady.hostPath /run/nvidia/validations
devicePlugin.gpuOperatorToolkitReady.securityContext {privileged: true, runAsUser: 0}
devicePlugin.image docker.io projecthami/hami ""
devicePlugin.deviceSplitCount 10
devicePlugin.deviceMemoryScaling 1
devicePlugin.deviceCoreScaling 1
devicePlugin.enableNumaTopology false
devicePlugin.preConfiguredDeviceMemory 0
devicePlugin.nodeConfiguration.config (a sample entry for your-node-name)
devicePlugin.nodeConfiguration.externalConfigName ""
devicePlugin.runtimeClassName ""
devicePlugin.createRuntimeClass false
devicePlugin.migStrategy none
devicePlugin.disablecorelimit "false"
devicePlugin.passDeviceSpecsEnabled false
devicePlugin.deviceListStrategy envvar
devicePlugin.nvidiaHookPath null
devicePlugin.nvidiaDriverRoot null
devicePlugin.gdrcopyEnabled null
devicePlugin.gdsEnabled null
devicePlugin.mofedEnabled null
devicePlugin.extraArgs [-v=4]
devicePlugin.extraEnvs {}
devicePlugin.service.type NodePort
devicePlugin.service.httpPort 31992
devicePlugin.service.labels {}
devicePlugin.service.annotations {}
devicePlugin.pluginPath /var/lib/kubelet/device-plugins
devicePlugin.libPath /usr/local/vgpu
devicePlugin.podAnnotations {}
devicePlugin.hostPID true
devicePlugin.hostNetwork false
devicePlugin.securityContext {privileged: true, allowPrivilegeEscalation: true, capabilities: {drop: [ALL], add: [SYS_ADMIN]}}
devicePlugin.nvidiaNodeSelector {gpu: "on"}
devicePlugin.tolerations []
devicePlugin.updateStrategy {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
devicePlugin.resources {}
devicePlugin.monitor.image docker.io projecthami/hami ""
devicePlugin.monitor.ctrPath /usr/local/vgpu/containers
devicePlugin.monitor.resyncInterval 5m
devicePlugin.monitor.extraArgs [-v=4]
devicePlugin.monitor.extraEnvs {}
devicePlugin.monitor.securityContext {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [SYS_ADMIN]}}
devicePlugin.monitor.resources {}
mockDevicePlugin.enabled false
mockDevicePlugin.image docker.io projecthami/mock-device-plugin 1.0.1
devices.amd.customresources [amd.com/gpu, amd.com/gpumem, amd.com/gpucores]
devices.awsneuron.customresources [aws.amazon.com/neuron, aws.amazon.com/neuroncore]
devices.kunlun.enabled true
devices.kunlun.customresources [kunlunxin.com/xpu, kunlunxin.com/vxpu, kunlunxin.com/vxpu-memory]
devices.enflame.enabled true
devices.enflame.customresources [enflame.com/drs-gcu, enflame.com/gcu-memory, enflame.com/gcu-core, enflame.com/gcu]
devices.mthreads.enabled true
devices.mthreads.customresources [mthreads.com/vgpu]
devices.vastai.enabled true
devices.vastai.customresources [vastaitech.com/va]
devices.biren.enabled true
devices.biren.customresources [birentech.com/gpu]
devices.nvidia.gpuCorePolicy default
devices.nvidia.libCudaLogLevel 1
devices.ascend.enabled false
devices.ascend.image ""
devices.ascend.imagePullPolicy IfNotPresent
devices.ascend.extraArgs []
devices.ascend.nodeSelector {ascend: "on"}
devices.ascend.tolerations []
devices.ascend.runtimeClassName ""
devices.ascend.hamiVnpuCore false
devices.ascend.customresources [huawei.com/Ascend910A, huawei.com/Ascend910A-memory, huawei.com/Ascend910A-core, huawei.com/Ascend910B2, huawei.com/Ascend910B2-memory, huawei.com/Ascend910B2-core, huawei.com/Ascend910B3, huawei.com/Ascend910B3-memory, huawei.com/Ascend910B3-core, huawei.com/Ascend910B4, huawei.com/Ascend910B4-memory, huawei.com/Ascend910B4-core, huawei.com/Ascend910B4-1, huawei.com/Ascend910B4-1-memory, huawei.com/Ascend910B4-1-core, huawei.com/Ascend310P, huawei.com/Ascend310P-memory, huawei.com/Ascend310P-core, huawei.com/Ascend910C, huawei.com/Ascend910C-memory, huawei.com/Ascend910C-core]
devices.iluvatar.enabled false
devices.iluvatar.customresources [iluvatar.ai/BI-V100-vgpu, iluvatar.ai/BI-V100.vCore, iluvatar.ai/BI-V100.vMem, iluvatar.ai/BI-V150-vgpu, iluvatar.ai/BI-V150.vCore, iluvatar.ai/BI-V150.vMem, iluvatar.ai/MR-V100-vgpu, iluvatar.ai/MR-V100.vCore, iluvatar.ai/MR-V100.vMem, iluvatar.ai/MR-V50-vgpu, iluvatar.ai/MR-V50.vCore, iluvatar.ai/MR-V50.vMem]
legacyMetrics false
prometheus.enabled false
device-config.content ""
"""
