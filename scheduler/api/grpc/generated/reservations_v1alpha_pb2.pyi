from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lifecycle(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIFECYCLE_UNSPECIFIED: _ClassVar[Lifecycle]
    LIFECYCLE_EXPLICIT: _ClassVar[Lifecycle]
    LIFECYCLE_HEARTBEAT: _ClassVar[Lifecycle]

class ReservationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESERVATION_STATE_UNSPECIFIED: _ClassVar[ReservationState]
    RESERVATION_STATE_PENDING: _ClassVar[ReservationState]
    RESERVATION_STATE_CONFIRMED: _ClassVar[ReservationState]
    RESERVATION_STATE_SETTLED: _ClassVar[ReservationState]
    RESERVATION_STATE_CANCELLED: _ClassVar[ReservationState]
    RESERVATION_STATE_EXPIRED: _ClassVar[ReservationState]

class CancelCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_CAUSE_UNSPECIFIED: _ClassVar[CancelCause]
    CANCEL_CAUSE_CALLER: _ClassVar[CancelCause]
    CANCEL_CAUSE_NODE_REFUSED: _ClassVar[CancelCause]
LIFECYCLE_UNSPECIFIED: Lifecycle
LIFECYCLE_EXPLICIT: Lifecycle
LIFECYCLE_HEARTBEAT: Lifecycle
RESERVATION_STATE_UNSPECIFIED: ReservationState
RESERVATION_STATE_PENDING: ReservationState
RESERVATION_STATE_CONFIRMED: ReservationState
RESERVATION_STATE_SETTLED: ReservationState
RESERVATION_STATE_CANCELLED: ReservationState
RESERVATION_STATE_EXPIRED: ReservationState
CANCEL_CAUSE_UNSPECIFIED: CancelCause
CANCEL_CAUSE_CALLER: CancelCause
CANCEL_CAUSE_NODE_REFUSED: CancelCause

class Node(_message.Message):
    __slots__ = ("node_id", "endpoint")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    endpoint: str
    def __init__(self, node_id: _Optional[str] = ..., endpoint: _Optional[str] = ...) -> None: ...

class Hint(_message.Message):
    __slots__ = ("kind", "cpu_count", "memory_mb", "images", "template_id", "metadata", "locality", "require", "resources", "spread")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Hint.Kind]
        KIND_COLD_SANDBOX: _ClassVar[Hint.Kind]
        KIND_SANDBOX: _ClassVar[Hint.Kind]
    KIND_UNSPECIFIED: Hint.Kind
    KIND_COLD_SANDBOX: Hint.Kind
    KIND_SANDBOX: Hint.Kind
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class RequireEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LabelValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LabelValues, _Mapping]] = ...) -> None: ...
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LOCALITY_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    kind: Hint.Kind
    cpu_count: int
    memory_mb: int
    images: _containers.RepeatedScalarFieldContainer[str]
    template_id: str
    metadata: _containers.ScalarMap[str, str]
    locality: _containers.RepeatedScalarFieldContainer[str]
    require: _containers.MessageMap[str, LabelValues]
    resources: _containers.ScalarMap[str, int]
    spread: Spread
    def __init__(self, kind: _Optional[_Union[Hint.Kind, str]] = ..., cpu_count: _Optional[int] = ..., memory_mb: _Optional[int] = ..., images: _Optional[_Iterable[str]] = ..., template_id: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., locality: _Optional[_Iterable[str]] = ..., require: _Optional[_Mapping[str, LabelValues]] = ..., resources: _Optional[_Mapping[str, int]] = ..., spread: _Optional[_Union[Spread, _Mapping]] = ...) -> None: ...

class Spread(_message.Message):
    __slots__ = ("key", "over", "max", "skew")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    SKEW_FIELD_NUMBER: _ClassVar[int]
    key: str
    over: str
    max: int
    skew: int
    def __init__(self, key: _Optional[str] = ..., over: _Optional[str] = ..., max: _Optional[int] = ..., skew: _Optional[int] = ...) -> None: ...

class LabelValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("hint", "lifecycle", "reservation_ttl_ms", "exclude_nodes", "idempotency_key", "sandbox_id")
    HINT_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_NODES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    hint: Hint
    lifecycle: Lifecycle
    reservation_ttl_ms: int
    exclude_nodes: _containers.RepeatedScalarFieldContainer[str]
    idempotency_key: str
    sandbox_id: str
    def __init__(self, hint: _Optional[_Union[Hint, _Mapping]] = ..., lifecycle: _Optional[_Union[Lifecycle, str]] = ..., reservation_ttl_ms: _Optional[int] = ..., exclude_nodes: _Optional[_Iterable[str]] = ..., idempotency_key: _Optional[str] = ..., sandbox_id: _Optional[str] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("reservation_id", "node_id", "state", "lifecycle", "cpu_count", "memory_bytes", "sandbox_id", "created_at_ms", "expires_at_ms", "reason", "resources")
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    node_id: str
    state: ReservationState
    lifecycle: Lifecycle
    cpu_count: int
    memory_bytes: int
    sandbox_id: str
    created_at_ms: int
    expires_at_ms: int
    reason: str
    resources: _containers.ScalarMap[str, int]
    def __init__(self, reservation_id: _Optional[str] = ..., node_id: _Optional[str] = ..., state: _Optional[_Union[ReservationState, str]] = ..., lifecycle: _Optional[_Union[Lifecycle, str]] = ..., cpu_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., sandbox_id: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., reason: _Optional[str] = ..., resources: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("node", "strategy", "replayed", "degraded", "reservation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    node: Node
    strategy: str
    replayed: bool
    degraded: bool
    reservation: Reservation
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., strategy: _Optional[str] = ..., replayed: _Optional[bool] = ..., degraded: _Optional[bool] = ..., reservation: _Optional[_Union[Reservation, _Mapping]] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("hint", "sandbox_id")
    HINT_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    hint: Hint
    sandbox_id: str
    def __init__(self, hint: _Optional[_Union[Hint, _Mapping]] = ..., sandbox_id: _Optional[str] = ...) -> None: ...

class ScheduleBatchRequest(_message.Message):
    __slots__ = ("count", "hint", "requests", "all", "lifecycle", "reservation_ttl_ms", "exclude_nodes", "idempotency_key")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_NODES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    count: int
    hint: Hint
    requests: _containers.RepeatedCompositeFieldContainer[BatchItem]
    all: bool
    lifecycle: Lifecycle
    reservation_ttl_ms: int
    exclude_nodes: _containers.RepeatedScalarFieldContainer[str]
    idempotency_key: str
    def __init__(self, count: _Optional[int] = ..., hint: _Optional[_Union[Hint, _Mapping]] = ..., requests: _Optional[_Iterable[_Union[BatchItem, _Mapping]]] = ..., all: _Optional[bool] = ..., lifecycle: _Optional[_Union[Lifecycle, str]] = ..., reservation_ttl_ms: _Optional[int] = ..., exclude_nodes: _Optional[_Iterable[str]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class BatchPlacement(_message.Message):
    __slots__ = ("index", "node", "reservation", "degraded")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    index: int
    node: Node
    reservation: Reservation
    degraded: bool
    def __init__(self, index: _Optional[int] = ..., node: _Optional[_Union[Node, _Mapping]] = ..., reservation: _Optional[_Union[Reservation, _Mapping]] = ..., degraded: _Optional[bool] = ...) -> None: ...

class BatchRefusal(_message.Message):
    __slots__ = ("index", "reasons", "over_limit")
    class ReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    OVER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    index: int
    reasons: _containers.ScalarMap[str, int]
    over_limit: OverLimit
    def __init__(self, index: _Optional[int] = ..., reasons: _Optional[_Mapping[str, int]] = ..., over_limit: _Optional[_Union[OverLimit, _Mapping]] = ...) -> None: ...

class ScheduleBatchResponse(_message.Message):
    __slots__ = ("placed", "refused", "strategy", "replayed")
    PLACED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    placed: _containers.RepeatedCompositeFieldContainer[BatchPlacement]
    refused: _containers.RepeatedCompositeFieldContainer[BatchRefusal]
    strategy: str
    replayed: bool
    def __init__(self, placed: _Optional[_Iterable[_Union[BatchPlacement, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[BatchRefusal, _Mapping]]] = ..., strategy: _Optional[str] = ..., replayed: _Optional[bool] = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ("reservation_id", "sandbox_id")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    sandbox_id: str
    def __init__(self, reservation_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("reservation_id", "idempotency_key", "reason", "cause")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    idempotency_key: str
    reason: str
    cause: CancelCause
    def __init__(self, reservation_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., reason: _Optional[str] = ..., cause: _Optional[_Union[CancelCause, str]] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("reservation_id", "ttl_ms")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    ttl_ms: int
    def __init__(self, reservation_id: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ReservationResponse(_message.Message):
    __slots__ = ("reservation", "replayed", "orphaned")
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_FIELD_NUMBER: _ClassVar[int]
    reservation: Reservation
    replayed: bool
    orphaned: bool
    def __init__(self, reservation: _Optional[_Union[Reservation, _Mapping]] = ..., replayed: _Optional[bool] = ..., orphaned: _Optional[bool] = ...) -> None: ...

class PendingTotals(_message.Message):
    __slots__ = ("cpu_count", "memory_bytes", "sandbox_count")
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_COUNT_FIELD_NUMBER: _ClassVar[int]
    cpu_count: int
    memory_bytes: int
    sandbox_count: int
    def __init__(self, cpu_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., sandbox_count: _Optional[int] = ...) -> None: ...

class NodeExplanation(_message.Message):
    __slots__ = ("node_id", "status", "rank", "reason", "cpu_pressure", "memory_pressure", "pending", "over_limit", "label")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CPU_PRESSURE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PRESSURE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    OVER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    status: str
    rank: int
    reason: str
    cpu_pressure: float
    memory_pressure: float
    pending: PendingTotals
    over_limit: OverLimit
    label: LabelMismatch
    def __init__(self, node_id: _Optional[str] = ..., status: _Optional[str] = ..., rank: _Optional[int] = ..., reason: _Optional[str] = ..., cpu_pressure: _Optional[float] = ..., memory_pressure: _Optional[float] = ..., pending: _Optional[_Union[PendingTotals, _Mapping]] = ..., over_limit: _Optional[_Union[OverLimit, _Mapping]] = ..., label: _Optional[_Union[LabelMismatch, _Mapping]] = ...) -> None: ...

class LabelMismatch(_message.Message):
    __slots__ = ("label", "asked", "found")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    label: str
    asked: _containers.RepeatedScalarFieldContainer[str]
    found: str
    def __init__(self, label: _Optional[str] = ..., asked: _Optional[_Iterable[str]] = ..., found: _Optional[str] = ...) -> None: ...

class OverLimit(_message.Message):
    __slots__ = ("limit", "current", "pending", "requested", "maximum")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    limit: str
    current: int
    pending: int
    requested: int
    maximum: int
    def __init__(self, limit: _Optional[str] = ..., current: _Optional[int] = ..., pending: _Optional[int] = ..., requested: _Optional[int] = ..., maximum: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("strategy", "node", "degraded", "nodes", "reasons", "over_limit")
    class ReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    OVER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    node: Node
    degraded: bool
    nodes: _containers.RepeatedCompositeFieldContainer[NodeExplanation]
    reasons: _containers.ScalarMap[str, int]
    over_limit: OverLimit
    def __init__(self, strategy: _Optional[str] = ..., node: _Optional[_Union[Node, _Mapping]] = ..., degraded: _Optional[bool] = ..., nodes: _Optional[_Iterable[_Union[NodeExplanation, _Mapping]]] = ..., reasons: _Optional[_Mapping[str, int]] = ..., over_limit: _Optional[_Union[OverLimit, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("candidates", "reasons", "over_limit")
    class ReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    OVER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    candidates: int
    reasons: _containers.ScalarMap[str, int]
    over_limit: OverLimit
    def __init__(self, candidates: _Optional[int] = ..., reasons: _Optional[_Mapping[str, int]] = ..., over_limit: _Optional[_Union[OverLimit, _Mapping]] = ...) -> None: ...

class Conflict(_message.Message):
    __slots__ = ("reservation",)
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    reservation: Reservation
    def __init__(self, reservation: _Optional[_Union[Reservation, _Mapping]] = ...) -> None: ...
