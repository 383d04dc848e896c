"""What the volume plugins say alike."""

from holdfast.core.classes import PodClass
from holdfast.core.volumes import ClaimKey


def not_found(kind: str, name: str) -> str:
    """As the API machinery puts it."""
    return f'{kind} "{name}" not found'


def not_for_pod(cls: PodClass, claim: ClaimKey) -> str:
    """A claim has the name of an ephemeral volume's but is another's."""
    pod = f"{cls.namespace}/{cls.pod.metadata.name}"
    return f"PVC {claim} was not created for pod {pod} (pod is not owner)"
