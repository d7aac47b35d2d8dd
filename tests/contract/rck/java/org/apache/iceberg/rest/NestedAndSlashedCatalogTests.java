package org.apache.iceberg.rest;

import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.AfterEach;

/**
 * The table kit for a server that allows more than the reference server does: namespaces inside namespaces, and
 * slashes in the names of namespaces and tables. The published kit has these tests but answers "unsupported" for
 * both without a switch, so they are always skipped there.
 *
 * <p>It lies in the kit's package because the kit's hooks are visible only there. The pom names the four tests it
 * is run for; everything else of the kit runs in its own class.
 */
public class NestedAndSlashedCatalogTests extends RESTCompatibilityKitCatalogTests {
  private static final Namespace PARENT = Namespace.of("parent");

  /**
   * The kit cleans up before each test only, and does not know the namespace that both nested tests expect to be
   * absent; the class after this one expects all of them to be absent.
   */
  @AfterEach
  void leaveNothing() {
    RCKUtils.purgeCatalogTestEntries(catalog());
    if (catalog().namespaceExists(PARENT)) {
      catalog().dropNamespace(PARENT);
    }
  }

  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }
}
