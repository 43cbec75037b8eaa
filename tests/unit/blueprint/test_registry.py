import pytest

from regista import ActionFactory, JobContext, StateMachineBlueprint
from regista.blueprint.registry import BlueprintRegistry
from regista.errors import BlueprintInvalid
from regista.model.attributes import declared_types


def play(name: str, **declared: str) -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint(name, search_attributes=declared)

    @blueprint.handler_for("start", is_start=True, is_end=True)
    def start(context: object, actions: object) -> None:
        pass

    return blueprint


def test_a_declaration_that_is_wrong_says_so_where_it_is_made() -> None:
    with pytest.raises(BlueprintInvalid, match="'Size': expected one of Keyword"):
        StateMachineBlueprint("a", search_attributes={"Size": "Number"})


def test_what_is_declared_anywhere_can_be_searched_for() -> None:
    library = BlueprintRegistry(declared_types({"Team": "Keyword"}))
    library.add(play("a", Size="Int"))
    library.add(play("b", Asset="Keyword", Size="Long"))
    assert set(library.attributes()) == {"Team", "Size", "Asset"}
    assert set(library.attributes_of(library.get("a"))) == {"Team", "Size"}


def test_one_name_with_two_types_is_refused() -> None:
    library = BlueprintRegistry(declared_types({"Team": "Keyword"}))
    library.add(play("a", Size="Int"))
    for declared in ({"Size": "Keyword"}, {"Team": "Text"}):
        with pytest.raises(BlueprintInvalid, match="take one type, or two names"):
            library.add(play("b", **declared))
    library.add(play("a", Size="Keyword"))  # its own newer version may


def test_declarations_do_not_change_the_version_of_a_blueprint() -> None:
    assert play("a").version == play("a", Size="Int").version


def at(name: str, endpoint: str | None, version: str | None = "v1") -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint(name, api_endpoint=endpoint, api_version=version)

    @blueprint.handler_for("start", is_start=True, is_end=True)
    async def start(context: JobContext, actions: ActionFactory) -> None: ...

    return blueprint


def test_two_blueprints_at_one_path_are_refused_and_a_newer_one_of_the_same_name_is_not() -> None:
    library = BlueprintRegistry()
    library.add(at("a", "/jobs/a"))
    library.add(at("a", "/jobs/a"))
    library.add(at("none", None))
    library.add(at("none-too", None))
    with pytest.raises(BlueprintInvalid, match="api_endpoint 'jobs/a/' is that of 'a' already"):
        library.add(at("b", "jobs/a/"))
    with pytest.raises(BlueprintInvalid, match="api_endpoint '/v1/jobs/a' is that of 'a' already"):
        library.add(at("b", "/v1/jobs/a", None))  # the same path, by another way to write it


def test_a_path_leads_to_the_newest_and_is_free_once_that_has_moved() -> None:
    library = BlueprintRegistry()
    library.add(at("a", "/jobs/a"))
    assert library.find_by_path("v1/jobs/a") is library.get("a")
    assert library.find_by_path("jobs/a") is library.find_by_path("") is None
    moved = at("a", "/jobs/elsewhere", None)
    library.add(moved)
    assert library.find_by_path("jobs/elsewhere") is moved
    assert library.find_by_path("v1/jobs/a") is None
    library.add(at("b", "/jobs/a"))
    assert library.find_by_path("v1/jobs/a") is library.get("b")


def test_a_blueprint_that_is_changed_and_registered_again_is_where_it_says() -> None:
    library, changed = BlueprintRegistry(), at("a", "/x", None)
    for endpoint in ("/x", "/y", None):
        changed.api_endpoint = endpoint
        library.add(changed)
        assert [library.find_by_path(place) is changed for place in ("x", "y")] == [
            endpoint == "/x",
            endpoint == "/y",
        ]
    library.add(at("b", "/x", None))


def test_the_root_is_a_path_like_any_other() -> None:
    library = BlueprintRegistry()
    library.add(at("a", "/", None))
    assert library.find_by_path("") is library.get("a")
    with pytest.raises(BlueprintInvalid, match="is that of 'a' already"):
        library.add(at("b", "//", None))
